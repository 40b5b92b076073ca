package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/container"
	"github.com/evalrun/evalrun/internal/docker"
	"github.com/evalrun/evalrun/internal/sandbox"
)

// checks are all checks, in the order in which they are printed.
func (o Options) checks() []check {
	list := []check{
		{name: "store", needed: true, look: func(context.Context) (string, error) { return o.Open() },
			means: "no run can be started or resumed here",
			mend:  "name another store with --store or EVALRUN_STORE, or mend the rights of its folder or user"},
		{name: "workers", look: o.Workers,
			means: "rollouts that wait for what no worker has stay where they are",
			mend:  "evalrun worker --tag TAG,... where these tags are true, with what the workers lack"},
		{name: "files", needed: true, look: o.files,
			means: "rollouts whose files are kept (EVALRUN_BLOBS) cannot be suspended, nor go on",
			mend:  "set EVALRUN_BLOBS to a folder that is there, or to a bucket whose keys may read, write, list and delete"},
		{name: "free space", needed: true, look: o.space,
			means: "a run ends with an error when the file system of the store is full",
			mend:  "evalrun prune, evalrun images gc, or a store on another disk"},
		{name: "clock", needed: true, look: o.clock,
			means: "leases and timers of suspended rollouts end at the wrong time, and certificates are refused",
			mend:  "set the clock, such as with: timedatectl set-ntp true"},
		{name: "bwrap", look: works(sandbox.IsolationBwrap),
			means: "coding agents and tasks run only in plain folders (--isolation process), which they can leave",
			mend:  mendBwrap()},
		{name: "image", look: works(sandbox.IsolationImage),
			means: "tasks do not run in their images, but beside what this machine has",
			mend:  mendBwrap()},
		{name: "podman", look: podman, means: "tasks do not run with --isolation podman, and services of a compose file only in a Docker daemon", mend: install("podman")},
		{name: "docker", look: daemon, means: "tasks do not run in containers of a Docker daemon", mend: mendDocker()},
		{name: "isolation", look: func(ctx context.Context) (string, error) { return o.Isolation(ctx) },
			means: "tasks do not run in their images", mend: "one of the three above"},
		{name: "podman-compose", look: compose,
			means: "services of a compose file run only in a Docker daemon", mend: install("podman-compose")},
		{name: "image builder", look: builder,
			means: "images of tasks cannot be built or pulled", mend: install(firstBuilder())},
		{name: "python", look: version("python3"),
			means: "agents and evaluators written in Python do not run, such as the agent that evalrun init writes",
			mend:  install("python3")},
		{name: "git", look: version("git"), means: "tasks are not fetched from repositories", mend: install("git")},
	}
	for _, name := range agent.Names() {
		entry, _ := agent.Registered(name)
		if len(entry.Command) == 0 {
			continue
		}
		program := entry.Command[0]
		list = append(list, check{name: "agent " + name, look: version(program),
			means: "the agent " + name + " does not run",
			mend:  cmp.Or(agent.HowToInstall(program), "install the program "+program+", so that it is on PATH")})
	}
	for _, key := range keys() {
		list = append(list, check{name: "key " + key.name, mend: "export " + key.name + "=…, or a line in an --env-file",
			means: "no key for " + strings.Join(key.users, ", "),
			look: func(context.Context) (string, error) {
				if os.Getenv(key.name) == "" {
					return "", errors.New("it is not set")
				}
				return "it is set", nil
			}})
	}
	return list
}

// files asks whether files of suspended rollouts can be kept.
func (o Options) files(ctx context.Context) (string, error) {
	if o.Files == nil {
		return "there is no store yet", nil
	}
	return o.Files(ctx)
}

// works asks whether an isolation can be had.
func works(isolation string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return "it works", sandbox.Supported(isolation) }
}

func podman(ctx context.Context) (string, error) {
	if _, err := container.Find(ctx); err != nil {
		return "", err
	}
	return version("podman")(ctx)
}

// daemon asks the Docker daemon, and whether its containers can have evalrun's program.
func daemon(ctx context.Context) (string, error) {
	c, err := docker.Open(ctx)
	if err != nil {
		return "", err
	}
	found := fmt.Sprintf("Docker %s with containers of %s, at %s", c.Version, c.Platform, c.Host())
	if err := (&container.Daemon{Client: c}).CanEquip(""); err != nil {
		return "", fmt.Errorf("%s, for oracle and nop alone: %w", found, err)
	}
	return found, nil
}

func compose(ctx context.Context) (string, error) {
	return "it works", container.CanCompose(ctx)
}

// builders are the programs that make images, in the order in which they are taken. Users other than
// root have only skopeo, which pulls and does not build, unless they choose docker.
func builders() []string {
	if os.Geteuid() == 0 {
		return []string{"podman", "buildah", "docker"}
	}
	return []string{"skopeo"}
}

func firstBuilder() string { return builders()[0] }

func builder(context.Context) (string, error) {
	for _, name := range builders() {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("there is no %s on PATH", strings.Join(builders(), ", "))
}

// modelKey is a variable with a key, and who needs it.
type modelKey struct {
	name  string
	users []string
}

// keys are the variables that the registry's agents and the judges take keys from.
func keys() (list []modelKey) {
	list = []modelKey{
		{"ANTHROPIC_API_KEY", []string{"judges of anthropic/…"}},
		{"OPENAI_API_KEY", []string{"judges of openai/…"}},
	}
	for _, name := range agent.Names() {
		entry, _ := agent.Registered(name)
		if entry.Model == nil {
			continue
		}
		for _, variable := range agent.VariablesIn(entry.Model.Key) {
			i := slices.IndexFunc(list, func(k modelKey) bool { return k.name == variable })
			if i < 0 {
				list, i = append(list, modelKey{name: variable}), len(list)
			}
			list[i].users = append(list[i].users, name)
		}
	}
	return list
}

func install(name string) string {
	if runtime.GOOS == "darwin" {
		return "brew install " + strings.TrimSuffix(name, ".io")
	}
	return "apt-get install " + name + " (or dnf, apk, pacman)"
}

func mendDocker() string {
	if runtime.GOOS == "darwin" {
		return "start Docker Desktop, Colima or OrbStack, or name a daemon with DOCKER_HOST"
	}
	return install("docker.io") + "; or name a daemon with DOCKER_HOST"
}

func mendBwrap() string {
	if runtime.GOOS == "darwin" {
		return "a Linux machine: macOS has no such isolation"
	}
	return install("bubblewrap") + "; in a container, start that with --security-opt seccomp=unconfined --cap-add SYS_ADMIN"
}
