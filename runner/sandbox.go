package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/container"
	"github.com/evalrun/evalrun/internal/docker"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/plans"
	"github.com/evalrun/evalrun/internal/sandbox"
	"github.com/evalrun/evalrun/tasks"
)

// The kinds of isolation.
const (
	// IsolationAuto is IsolationImage where bubblewrap works. Otherwise it is, for tasks with images,
	// the first of IsolationPodman and IsolationDocker that this machine has.
	IsolationAuto = "auto"
	// IsolationBwrap gives an agent a file tree and processes of its own. It needs Linux.
	IsolationBwrap = sandbox.IsolationBwrap
	// IsolationImage runs a task in its image, if it has one, and everything else as IsolationBwrap
	// does. It needs Linux.
	IsolationImage = sandbox.IsolationImage
	// IsolationProcess runs an agent in plain folders.
	IsolationProcess = sandbox.IsolationProcess
	// IsolationPodman runs tasks in containers of podman, which have the root of their images.
	IsolationPodman = sandbox.IsolationPodman
	// IsolationDocker runs tasks in containers of the Docker daemon that DOCKER_HOST names.
	IsolationDocker = sandbox.IsolationDocker
)

// Isolations are the kinds of isolation.
var Isolations = []string{IsolationAuto, IsolationImage, IsolationBwrap, IsolationProcess, IsolationPodman, IsolationDocker}

// SandboxOptions choose the sandbox of ACP agents and of agents of tasks, and its contents.
type SandboxOptions struct {
	// Isolation is one of Isolations; empty for IsolationAuto.
	Isolation string
	// MCPConfig is a file with further MCP servers for ACP agents. One replaces a server of the same
	// name in a task.
	MCPConfig string
	// MCPDirect gives agents their MCP servers as they are declared. Otherwise they reach them through
	// the gateway, which records calls and suspends rollouts on long-running work.
	MCPDirect bool
	// KeepImages keeps the images of the run from evalrun images gc for as long as the run is in the
	// store. Otherwise they are kept until the rollouts that run in them have ended.
	KeepImages bool
	// Overrides change the limits of tasks.
	Overrides tasks.Overrides

	chosen string // what IsolationAuto is for the tasks; empty for IsolationImage
	why    string // says so, if it is not IsolationImage, or could be nothing else
}

func (o SandboxOptions) isolation() string {
	if o.Isolation == "" || o.Isolation == IsolationAuto {
		return cmp.Or(o.chosen, IsolationImage)
	}
	return o.Isolation
}

// choose decides what IsolationAuto is. all says that there is nothing but tasks with images.
func (o *SandboxOptions) choose(dirs []string, all bool) {
	if o.Isolation != "" && o.Isolation != IsolationAuto {
		return
	}
	lacks := sandbox.Available()
	if lacks == nil {
		if lacks = sandbox.ImageAvailable(); lacks == nil {
			return
		}
	} else {
		all = false // without bubblewrap there is nothing that the others would lose
	}
	some := false
	for _, dir := range dirs {
		if t, _ := tasks.Load(dir); t != nil && t.HasImage() {
			some = true
		} else if all {
			return
		}
		if some && !all {
			break
		}
	}
	if !some {
		return
	}
	o.chosen, o.why = firstEngine(lacks, func(engine string) error { return SandboxOptions{Isolation: engine}.supported() })
}

// firstEngine returns the first of podman and docker that can be had, and why it is that; an empty one
// if it is neither.
func firstEngine(lacks error, try func(engine string) error) (chosen, why string) {
	why = fmt.Sprintf("image: %v", lacks)
	for _, one := range []string{IsolationPodman, IsolationDocker} {
		err := try(one)
		if err == nil {
			return one, why
		}
		why += fmt.Sprintf("; %s: %v", one, err)
	}
	return "", why
}

// Isolation is the isolation that was chosen for the set's tasks, and why; empty if it is that which was
// asked for, or the usual one.
func (e *EvalSet) Isolation() (chosen, why string) {
	return e.req.Isolation, e.req.IsolationReason
}

// ChooseIsolation says what IsolationAuto is here for tasks with images, and why it is not something
// before that; an error if it can be nothing.
func ChooseIsolation(ctx context.Context) (chosen, why string, err error) {
	lacks := cmp.Or(sandbox.Available(), sandbox.ImageAvailable())
	if lacks == nil {
		return IsolationImage, "", nil
	}
	chosen, why = firstEngine(lacks, func(engine string) (err error) { // nothing is swept, unlike before a run
		if engine == IsolationDocker {
			_, err = docker.Open(ctx)
		} else {
			_, err = container.Find(ctx)
		}
		return err
	})
	if chosen == "" {
		return "", "", errors.New(why)
	}
	return chosen, why, nil
}

// others is the isolation of agents and tasks without an image.
func (o SandboxOptions) others() string {
	if o.isolation() == IsolationImage {
		return IsolationBwrap
	}
	return o.isolation()
}

// capabilities returns the capabilities of the isolation for a task.
func (o SandboxOptions) capabilities() tasks.Capabilities {
	isolated := o.others() != IsolationProcess
	can := tasks.Capabilities{NoNetwork: isolated, FileTree: isolated}
	if o.isolation() == IsolationPodman || o.isolation() == IsolationDocker {
		can.Images, can.Containers = true, true
		return can
	}
	can.NoImages = "that takes --isolation image"
	if o.isolation() == IsolationImage {
		err := sandbox.ImageAvailable()
		if can.Images = err == nil; err != nil {
			can.NoImages = err.Error()
		} else {
			can.NoImages = ""
		}
	}
	return can
}

// composes returns why podman cannot run the services of compose files here.
var composes = sync.OnceValue(func() error { return container.CanCompose(context.Background()) })

// composesInDaemon returns why the Docker daemon cannot run the services of compose files.
func composesInDaemon() error {
	daemon, err := container.OpenDaemon(context.Background())
	if err != nil {
		return err
	}
	return daemon.CanCompose()
}

// placeOf returns the isolation's capabilities for one task, and the engine that runs it if it has
// services beside it. With isolation "image", such a task runs in podman, or else in a Docker daemon:
// bubblewrap has no services.
func (o SandboxOptions) placeOf(t *tasks.Task) (can tasks.Capabilities, services string) {
	can = o.capabilities()
	if t.ComposeFile() == "" {
		return can, ""
	}
	engine := IsolationPodman
	var lacks error
	switch o.isolation() {
	case IsolationPodman:
		lacks = composes()
	case IsolationImage:
		if lacks = composes(); lacks != nil {
			if daemon := composesInDaemon(); daemon == nil {
				engine, lacks = IsolationDocker, nil
			} else {
				lacks = fmt.Errorf("podman: %w; docker: %w", lacks, daemon)
			}
		}
	case IsolationDocker:
		engine, lacks = IsolationDocker, composesInDaemon()
	default:
		lacks = errors.New("services take --isolation podman or docker")
	}
	if lacks != nil {
		can.NoServices = lacks.Error()
		return can, ""
	}
	return tasks.Capabilities{NoNetwork: true, FileTree: true, Images: true, Containers: true, Services: true}, engine
}

// composeGaps lists the parts of a task's compose file that cannot be run.
func composeGaps(t *tasks.Task, lookup tasks.Lookup) (gaps []tasks.Gap) {
	_, err := container.ReadCompose(t.ComposeFile(), lookup)
	var problems input.Problems
	if err != nil && !errors.As(err, &problems) {
		return []tasks.Gap{{Key: "environment/" + container.ComposeFile, Reason: err.Error()}}
	}
	for _, p := range problems {
		gaps = append(gaps,
			tasks.Gap{Key: "environment/" + container.ComposeFile, Reason: strings.TrimPrefix(p.Error(), t.ComposeFile()+":")})
	}
	return gaps
}

// supported returns why the isolation cannot be used here.
func (o SandboxOptions) supported() error {
	if o.isolation() == IsolationPodman {
		_, err := container.Open(context.Background())
		return err
	}
	if o.isolation() == IsolationDocker {
		_, err := container.OpenDaemon(context.Background())
		return err
	}
	return sandbox.Supported(o.others())
}

// checkAgents refuses agents that the isolation cannot run.
func (o SandboxOptions) checkAgents(agents []agent.Entry) error {
	if o.isolation() != IsolationDocker {
		return nil
	}
	for _, a := range agents {
		if n := a.Needs(); !n.Sandbox || n.Task {
			continue
		}
		daemon, err := container.OpenDaemon(context.Background())
		if err == nil {
			err = daemon.CanEquip("")
		}
		if err != nil {
			return inputError("--isolation: %w", lacking(err))
		}
		break
	}
	return nil
}

// place plans the sandbox. needed says that some agent or task uses it.
func (e *EvalSet) place(needed bool) (input.Problems, error) {
	o, out := e.opts.Sandbox, &e.req.Environment
	if !slices.Contains(Isolations, o.isolation()) {
		return nil, inputError("--isolation: expected one of %s, got %q", strings.Join(Isolations, ", "), o.Isolation)
	}
	if o.MCPDirect {
		out.MCP = plans.MCPDirect
	}
	if !needed {
		if o.MCPConfig != "" {
			return nil, inputError("--mcp-config has a meaning only for agents that use MCP servers: ACP agents, and models with \"tools\": [\"mcp\"]")
		}
		return nil, nil
	}
	if err := o.checkAgents(e.req.Agents); err != nil {
		return nil, err
	}
	if err := o.supported(); err != nil {
		if o.others() != IsolationBwrap {
			return nil, inputError("--isolation: %w", lacking(err))
		}
		chosen := "--isolation bwrap"
		if o.isolation() != IsolationBwrap {
			chosen = "ACP agents and tasks run in bubblewrap unless --isolation says otherwise"
		}
		if o.why != "" {
			chosen = "tasks run in their images, for which this machine has nothing (" + o.why + ")"
		}
		return nil, inputError("%s: %w; or run in plain folders, without isolation: --isolation process", chosen, lacking(err))
	}
	out.Isolation, out.KeepImages, out.Overrides = o.others(), o.KeepImages, o.Overrides
	out.IsolationReason = o.why
	if o.MCPConfig == "" {
		return nil, nil
	}
	config, problems := tasks.LoadMCPConfig(o.MCPConfig)
	if err := problems.Err(false); err != nil {
		return nil, &InputError{Err: err}
	}
	out.MCPServers = config.Servers
	for _, s := range config.Servers {
		if _, err := tasks.ExpandServer(s, e.opts.Variables.lookup); err != nil {
			return nil, inputError("%s: %w", o.MCPConfig, err)
		}
	}
	return problems, nil
}
