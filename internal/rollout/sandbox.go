package rollout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/container"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/image"
	"github.com/evalrun/evalrun/internal/sandbox"
	"github.com/evalrun/evalrun/internal/taskcache"
	"github.com/evalrun/evalrun/internal/workspace"
	"github.com/evalrun/evalrun/tasks"
)

// sandboxSpec has the common parts of the sandboxes of one rollout: folders, servers and variables.
// The rollout need not have a task.
type sandboxSpec struct {
	folders   workspace.Layout
	isolation string
	task      *tasks.Task
	lookup    tasks.Lookup
	// servers are the MCP servers. declared are the same servers with their ${VAR}s.
	servers  []tasks.MCPServer
	declared []tasks.MCPServer
	// hidden lists folders of this machine that no process in a sandbox may see.
	hidden []string
	// resolved has the variables of environment.env, after those of the image.
	resolved []string
	// marker is the marker of the rollout.
	marker string
	// image is the image of the task; nil if it has none. executable is the evalrun program.
	image      *image.Image
	executable string
	// compose is the compose file of the task; nil if it has none. services are its services in podman;
	// nil while they do not run.
	compose  *container.Compose
	services *container.Services
	// remote is the container in a Docker daemon; nil if the sandbox is none, or if the container is
	// gone with the process that had it. own says that it is removed with the spec.
	remote *container.Remote
	own    bool
}

// release releases the resources of the sandboxes.
func (s *sandboxSpec) release() {
	if s.folders.Link != "" {
		_ = os.Remove(s.folders.Link) // the next segment replaces it
		s.folders.Link = ""
	}
	if s.image != nil {
		s.image.Release()
	}
	if s.own {
		_ = s.remote.Remove(context.Background()) // the next process that uses the daemon does it
	}
}

// newSandboxSpec makes the spec of the claimed rollout. The caller must release it. begins says
// that the rollout begins, so its folders do not exist yet.
func (h *held) newSandboxSpec(ctx context.Context, begins bool) (_ *sandboxSpec, err error) {
	plan := &h.run.Plan
	s := &sandboxSpec{isolation: h.isolation(), marker: h.marker(), lookup: plan.Lookup(h.host.Resolve),
		hidden: []string{h.host.Store.Dir()}, folders: h.layout(), executable: h.host.Executable}
	defer func() {
		if err != nil {
			s.release()
		}
	}()
	if s.isolation == sandbox.IsolationProcess { // otherwise the sandbox shows the folders under short paths
		if s.folders.Link, err = workspace.LinkTo(s.folders.Root, s.marker); err != nil {
			return nil, setupFault(err)
		}
	}
	for _, hidden := range plan.Hidden {
		s.hidden = append(s.hidden, h.run.within(hidden))
	}
	ref := h.evaluation.Task
	if ref == nil {
		s.servers = slices.Clone(plan.MCPServers)
		return s, s.resolve()
	}
	dir := h.run.within(ref.Dir)
	if ref.Source != "" && !tasks.IsDir(dir) {
		if dir, err = fetchAgain(ctx, ref); err != nil {
			return nil, err
		}
	}
	digest, err := tasks.Digest(dir)
	if err != nil {
		return nil, setupFault(fmt.Errorf("the task directory %s cannot be read: %w", ref.Dir, err))
	}
	if digest != ref.Digest {
		return nil, setupFault(fmt.Errorf(
			"the task directory %s is not what it was when the run was planned; plan a new run", ref.Dir))
	}
	task, problems := tasks.Load(dir)
	if err := problems.Err(false); err != nil {
		return nil, setupFault(err)
	}
	task.Override(plan.Overrides)
	s.task = task
	s.folders.Workdir = path.Clean(task.Workdir())
	s.servers = tasks.MergeServers(task.Config.Environment.MCPServers, plan.MCPServers)
	s.hidden = append(s.hidden, dir)
	if ref.Image {
		if err := (rolloutImages{h}).open(ctx, s, begins); err != nil {
			return nil, err
		}
		if s.isolation == sandbox.IsolationDocker {
			if err := s.openRemote(ctx, h, begins); err != nil {
				return nil, err
			}
		}
	} else if task.HasImage() { // the plan is of an evalrun that could leave the image out
		return nil, setupFault(errors.New(
			"the run was planned to run the task without its image, which is not possible any more; plan a new run"))
	}
	if h.hasServices() {
		if s.compose, err = container.ReadCompose(filepath.Join(dir, "environment", container.ComposeFile),
			s.lookup); err != nil {
			return nil, setupFault(err)
		}
	}
	return s, s.resolve()
}

// fetchAgain fetches a task whose folder is gone: the cache was emptied, or the store is on another
// machine.
func fetchAgain(ctx context.Context, ref *eval.Task) (string, error) {
	folder, err := taskcache.Parse(ref.Source)
	if err != nil {
		return "", setupFault(err)
	}
	dir, err := taskcache.Dir()
	if err != nil {
		return "", setupFault(err)
	}
	got, err := taskcache.Open(dir, nil).Get(ctx, []taskcache.Folder{folder})
	if err != nil {
		return "", setupFault(fmt.Errorf("the task directory %s is not there, and cannot be fetched again: %w", ref.Dir, err))
	}
	return got[0].Dir, nil
}

func setupFault(err error) *fault.Fault {
	return fault.New(fault.Setup, err.Error())
}

// populate puts the task's files in place, once.
func (s *sandboxSpec) populate() error {
	if err := s.folders.Create(); err != nil || s.task == nil || s.image != nil {
		return err
	}
	copies, err := s.task.Files()
	if err != nil {
		return setupFault(err)
	}
	for _, c := range copies {
		if err := s.copyIn(c.Source, c.Destination); err != nil {
			return setupFault(fmt.Errorf("%s cannot be put at %s: %w", filepath.Base(c.Source), c.Destination, err))
		}
	}
	return nil
}

// present makes sure that a resumed rollout finds its home. Without isolation the home is not in
// the store and does not move with it.
func (s *sandboxSpec) present() error {
	if _, err := os.Stat(s.folders.Dir(workspace.FolderHome)); err != nil {
		return fault.New(fault.Unresumable, "the agent's home is not where it was: "+err.Error())
	}
	return nil
}

// config returns the sandbox configuration that all processes of the rollout share. They see the
// agent's home; later only the agent is allowed to write to it.
func (s *sandboxSpec) config(network tasks.Network, user string) (sandbox.Config, error) {
	c := sandbox.Config{Isolation: s.isolation, Network: s.networked(network), Hidden: s.hidden, Limits: s.limits()}
	if s.folders.OwnTree {
		c.User = user
	}
	if s.image != nil {
		c.Root, c.User = s.folders.Layers(), cmp.Or(user, s.image.Config.User)
	}
	if c.IsRemote() {
		if s.remote == nil {
			return c, errRemoteGone
		}
		c.Remote = s.remote
	} else if c.Contained() {
		if err := s.contain(&c); err != nil {
			return c, err
		}
	}
	var err error
	c.Binds, err = s.folders.Mounts()
	return c, err
}

// networked reports whether processes get this machine's network. A phase without a setting has the
// task's.
func (s *sandboxSpec) networked(network tasks.Network) bool {
	mode := s.networkOf(network).NetworkMode
	return mode != tasks.NetworkNone && mode != tasks.NetworkAllowlist
}

// environ returns the variables of the task, and those that say where the folders are.
func (s *sandboxSpec) environ(cfg *sandbox.Config) []string {
	out := slices.Clone(s.resolved)
	return append(out, "EVALRUN_APP_DIR="+cfg.Path(s.folders.Workdir), "EVALRUN_LOGS_DIR="+cfg.Path(workspace.InsideLogs),
		"EVALRUN_TESTS_DIR="+cfg.Path(workspace.InsideTests), "EVALRUN_SOLUTION_DIR="+cfg.Path(workspace.InsideSolution))
}

// resolve puts values in place of the ${VAR}s of the task and its servers.
func (s *sandboxSpec) resolve() error {
	var err error
	if s.task != nil {
		if s.image != nil {
			s.resolved = slices.Clone(s.image.Config.Env)
		}
		if s.compose != nil {
			s.resolved = append(s.resolved, s.compose.Env...)
		}
		var own []tasks.KeyValue
		own, err = tasks.ExpandEnv("environment.env", s.task.Config.Environment.Env, s.lookup)
		s.resolved = append(s.resolved, variables(own)...)
	}
	s.declared = slices.Clone(s.servers)
	for i := range s.servers {
		var one error
		s.servers[i], one = tasks.ExpandServer(s.servers[i], s.lookup)
		err = errors.Join(err, one)
	}
	if err != nil {
		return setupFault(err)
	}
	return nil
}

func variables(env []tasks.KeyValue) []string {
	var out []string
	for _, kv := range env {
		out = append(out, kv.Name+"="+kv.Value)
	}
	return out
}

// contain makes the sandbox a container of an engine. Its root is the same as with isolation
// "image", so keeping, restoring and collecting files work alike. The container lasts as long as
// the process that is started in it.
func (s *sandboxSpec) contain(c *sandbox.Config) error {
	if s.image == nil {
		return fault.Newf(fault.NotRunnable, "isolation %q needs a task with an image", s.isolation)
	}
	engine, err := container.Open(context.Background())
	if err != nil {
		return fault.New(fault.NotRunnable, err.Error())
	}
	network := container.NetworkNone
	if c.Network {
		if network, err = engine.Public(context.Background()); err != nil {
			return err
		}
	}
	if s.services != nil && network == container.NetworkHost {
		network = container.NetworkBridge // the services have networks of their own
	}
	c.Network = network == container.NetworkHost // every other network has a loopback of its own
	c.Space = engine.New(container.Spec{Rollout: s.marker, Network: network, Limits: limitsOf(&s.task.Config.Environment),
		Executable: s.executable, Services: s.services})
	return nil
}

// limitsOf returns the limits that a task sets for its environment.
func limitsOf(e *tasks.Environment) container.Limits {
	l := e.Limits()
	return container.Limits{MemoryMB: l.MemoryMB, CPUs: l.CPUs, GPUs: e.GPUs}
}
