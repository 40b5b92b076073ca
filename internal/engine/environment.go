package engine

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/acp"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/sandbox"
	"github.com/evalrun/evalrun/internal/workspace"
	"github.com/evalrun/evalrun/tasks"
)

// Where published tasks expect things.
const (
	insideHome     = "/home/agent"
	insideLogs     = "/logs"
	insideTests    = "/tests"
	insideSolution = "/solution"
	defaultWorkdir = "/app"
	// otherHome is the home of an agent whose working directory is insideHome.
	otherHome = "/home/evalrun"
)

// environment is where one rollout's processes live: its folders on this machine, and how they look from inside. An evaluation of an eval set
// has one without a task.
type environment struct {
	root      string
	isolation string
	task      *tasks.Task
	lookup    tasks.Lookup
	servers   []tasks.MCPServer
	// declared are the servers with their ${VAR}s.
	declared []tasks.MCPServer
	// hidden are folders of this machine that nothing in it may see.
	hidden []string
	// resolved are the variables of environment.env.
	resolved []string
}

func (e *environment) dir(name string) string { return filepath.Join(e.root, name) }

func (e *environment) workdir() string {
	if e.task == nil {
		return defaultWorkdir
	}
	return path.Clean(e.task.Workdir())
}

// populate puts the task's files in place, once.
func (e *environment) populate() error {
	for _, dir := range append(slices.Clone(workspace.Kept), workspace.FolderLogs+"/agent", workspace.FolderLogs+"/verifier", workspace.FolderLogs+"/artifacts") {
		if err := os.MkdirAll(e.dir(dir), 0o700); err != nil {
			return err
		}
	}
	if e.isolation == sandbox.IsolationBwrap {
		below, rel := e.place("/root") // which every system has
		if err := os.MkdirAll(filepath.Join(below, rel), 0o700); err != nil {
			return err
		}
	}
	if e.task == nil {
		return nil
	}
	copies, err := e.task.Files()
	if err != nil {
		return fault.New(fault.Setup, err.Error())
	}
	for _, c := range copies {
		below, rel := e.place(c.Destination)
		if err := workspace.CopyIn(c.Source, below, rel); err != nil {
			return fault.Newf(fault.Setup, "%s cannot be put at %s: %v", filepath.Base(c.Source), c.Destination, err)
		}
	}
	return nil
}

// present makes sure that a rollout that goes on finds what it has left: without isolation that is not in the store, and does not move with it.
func (e *environment) present() error {
	if _, err := os.Stat(e.dir(workspace.FolderHome)); err != nil {
		return fault.New(fault.Unresumable, "the agent's home is not where it was: "+err.Error())
	}
	return nil
}

// home is the agent's home.
func (e *environment) home() string {
	if e.workdir() == insideHome {
		return otherHome
	}
	return insideHome
}

// binds are the folders of the environment at their places. With isolation the file tree is one of its own: whatever the agent writes is kept for the
// verifier and the segments to come, but for what the system has at its own places. A task may work at any of these places.
func (e *environment) binds() []sandbox.Bind {
	folders := []struct{ inside, name string }{{e.workdir(), workspace.FolderWorkspace}, {insideLogs, workspace.FolderLogs}}
	if e.isolation == sandbox.IsolationBwrap {
		folders = append(folders, []struct{ inside, name string }{{"/", workspace.FolderFiles}, {"/tmp", workspace.FolderTmp}, {"/var/tmp", workspace.FolderVarTmp}, {"/run", workspace.FolderRun}}...)
	}
	var binds []sandbox.Bind
	for _, f := range folders {
		if !slices.ContainsFunc(binds, func(b sandbox.Bind) bool { return b.Inside == f.inside }) {
			binds = append(binds, sandbox.Bind{Host: e.dir(f.name), Inside: f.inside, Writable: true})
		}
	}
	return binds
}

// place is where on this machine what is put at an inside path goes: a folder of the environment, and the path in it.
func (e *environment) place(inside string) (below, rel string) {
	known := append(e.binds(), sandbox.Bind{Host: e.dir(workspace.FolderHome), Inside: e.home()}, sandbox.Bind{Host: e.dir(workspace.FolderFiles), Inside: "/"})
	below, rel = workspace.BindOf(known, inside)
	return below, rel
}

// modes are those of folders that every user of a system may enter or write to.
var modes = map[string]os.FileMode{"/": 0o755, "/tmp": 0o777 | os.ModeSticky, "/var/tmp": 0o777 | os.ModeSticky, "/run": 0o755}

// space is the environment without what only one kind of process sees. The agent's home is there for all of them, and only the agent may write to it.
func (e *environment) space(network tasks.Network, user string) (sandbox.Space, error) {
	s := sandbox.Space{Isolation: e.isolation, Network: e.networked(network), Hidden: e.hidden}
	s.Binds = append(e.binds(), sandbox.Bind{Host: e.dir(workspace.FolderHome), Inside: e.home()})
	for _, b := range s.Binds {
		if err := os.MkdirAll(b.Host, 0o700); err != nil { // an earlier version made fewer
			return s, err
		}
	}
	if e.isolation != sandbox.IsolationBwrap {
		more, err := overlay(e.dir(workspace.FolderFiles), "/")
		s.Binds = append(s.Binds, more...)
		return s, err
	}
	s.User = user
	for _, b := range s.Binds {
		if mode, ok := modes[b.Inside]; ok {
			if err := os.Chmod(b.Host, mode); err != nil {
				return s, err
			}
		}
	}
	root, _ := workspace.BindOf(s.Binds, "/")
	more, err := besideTheSystem(root)
	s.Binds = append(s.Binds, more...)
	return s, err
}

// ofTheSystem are the folders that every space shows.
var ofTheSystem = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt"}

// besideTheSystem binds what a task puts into folders of the system. The rest of what is in the root is seen anyway. The agent may have made folders and
// links in the root where this machine has nothing.
func besideTheSystem(root string) (binds []sandbox.Bind, err error) {
	for _, dir := range ofTheSystem {
		info, err := os.Lstat(filepath.Join(root, dir))
		if real, none := filepath.EvalSymlinks(dir); err == nil && none == nil && info.IsDir() {
			more, err := overlay(filepath.Join(root, dir), real)
			if err != nil {
				return nil, err
			}
			binds = append(binds, more...)
		}
	}
	return binds, nil
}

// overlay binds what is in a folder of this machine beside what the system has in the inside folder, of which nothing else is covered. A link is left out:
// it would be followed out of the environment.
func overlay(host, inside string) (binds []sandbox.Bind, err error) {
	entries, err := os.ReadDir(host)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		if entry.Type()&os.ModeSymlink != 0 {
			continue
		}
		from, at := filepath.Join(host, entry.Name()), path.Join(inside, entry.Name())
		if real, err := filepath.EvalSymlinks(at); err == nil && entry.IsDir() && isOfTheSystem(at) && isOfTheSystem(real) { // /bin is a link to /usr/bin
			if info, err := os.Stat(real); err == nil && info.IsDir() {
				more, err := overlay(from, real)
				if err != nil {
					return nil, err
				}
				binds = append(binds, more...)
				continue
			}
		}
		binds = append(binds, sandbox.Bind{Host: from, Inside: at, Writable: true})
	}
	return binds, nil
}

func isOfTheSystem(inside string) bool {
	return slices.ContainsFunc(ofTheSystem, func(dir string) bool { return inside == dir || strings.HasPrefix(inside, dir+"/") })
}

// networked reports whether processes get this machine's network; a phase that says nothing has the environment's.
func (e *environment) networked(network tasks.Network) bool {
	mode := network.NetworkMode
	if mode == "" && e.task != nil {
		mode = e.task.Config.Environment.NetworkMode
	}
	return mode != tasks.NetworkNone
}

// agentPlace is where the agent of a stage runs. first says that the stage begins, and is not gone on with.
func (w *worker) agentPlace(e *environment, stage *tasks.Stage, first bool) (*agent.Place, error) {
	space, err := e.space(stage.Agent.Network, stage.Agent.User)
	if err != nil {
		return nil, err
	}
	for i := range space.Binds {
		if space.Binds[i].Inside == e.home() {
			space.Binds[i].Writable = true
		}
	}
	p := &agent.Place{Space: space, Home: space.Path(e.home()), Cwd: space.Path(e.workdir()), Executable: w.o.Executable, Env: e.environ(&space)}
	p.Setup, err = e.setup(&space, stage, first)
	return p, err
}

// environ are the variables of the environment, and for process isolation where its folders are.
func (e *environment) environ(space *sandbox.Space) []string {
	out := slices.Clone(e.resolved)
	return append(out, "EVALRUN_APP_DIR="+space.Path(e.workdir()), "EVALRUN_LOGS_DIR="+space.Path(insideLogs),
		"EVALRUN_TESTS_DIR="+space.Path(insideTests), "EVALRUN_SOLUTION_DIR="+space.Path(insideSolution))
}

// resolve resolves the variables of the environment and its servers.
func (e *environment) resolve() error {
	var err error
	if e.task != nil {
		var env, own []tasks.KeyValue
		if d, err := e.task.Dockerfile(); err == nil && d != nil {
			env = d.Env
		}
		own, err = tasks.ExpandEnv("environment.env", e.task.Config.Environment.Env, e.lookup)
		e.resolved = variables(append(slices.Clone(env), own...))
	}
	e.declared = slices.Clone(e.servers)
	for i := range e.servers {
		var one error
		e.servers[i], one = tasks.ExpandServer(e.servers[i], e.lookup)
		err = errors.Join(err, one)
	}
	if err != nil {
		return fault.New(fault.Setup, err.Error())
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

// setup is what runs before the agent: servers each time, since they end with its process; the commands once.
func (e *environment) setup(space *sandbox.Space, stage *tasks.Stage, first bool) (*sandbox.Setup, error) {
	s := &sandbox.Setup{}
	for _, server := range e.servers {
		if !server.Started() {
			continue
		}
		dir := server.Cwd
		if dir == "" {
			dir = e.workdir()
		}
		s.Services = append(s.Services, sandbox.SetupCommand{Args: append([]string{server.Command}, server.Args...), Dir: space.Path(dir), Env: variables(server.Env)})
		if address := addressOf(server.URL); address != "" {
			s.WaitFor = append(s.WaitFor, address)
		}
	}
	if e.task == nil {
		if s.Services == nil {
			return nil, nil
		}
		return s, nil
	}
	config := e.task.Config.Environment
	firstStage := first && (stage.Name == "" || stage.Name == e.task.Config.Steps[0].Name)
	for i, c := range config.SetupCommands {
		if !firstStage {
			break
		}
		env, err := tasks.ExpandEnv(fmt.Sprintf("environment.setup_commands[%d].env", i), c.Env, e.lookup)
		if err != nil {
			return nil, fault.New(fault.Setup, err.Error())
		}
		dir := c.Cwd
		if dir == "" {
			dir = e.workdir()
		}
		s.Commands = append(s.Commands, sandbox.SetupCommand{Command: c.Command, Dir: space.Path(dir), Env: variables(env), Timeout: c.TimeoutSec.Duration()})
	}
	if stage.Workdir != "" && first && fileExists(filepath.Join(stage.Workdir, stepSetup)) {
		s.Commands = append(s.Commands, sandbox.SetupCommand{Args: []string{"/bin/bash", "./" + stepSetup}, Dir: space.Path(e.workdir())})
	}
	check := config.Healthcheck
	if stage.Healthcheck != nil {
		check = stage.Healthcheck
	}
	if check != nil {
		s.Healthcheck = &sandbox.Healthcheck{
			SetupCommand: sandbox.SetupCommand{Command: check.Command, Dir: space.Path(e.workdir()), Timeout: check.TimeoutSec.Duration()},
			Interval:     check.IntervalSec.Duration(), StartPeriod: check.StartPeriodSec.Duration(), StartInterval: check.StartIntervalSec.Duration(), Retries: check.Retries,
		}
	}
	if s.Services == nil && s.Commands == nil && s.Healthcheck == nil {
		return nil, nil
	}
	return s, nil
}

// stepSetup is run by bash, as Harbor does, in the working directory before a step that brings it along.
const stepSetup = "setup.sh"

// addressOf is host and port of a URL, empty if it has none.
func addressOf(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || u.Hostname() == "" {
		return ""
	}
	port := u.Port()
	if port == "" {
		port = map[bool]string{true: "443", false: "80"}[u.Scheme == "https"]
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// project turns the task's MCP servers into what session/new wants: the names of transports differ, lists keep their order, tool filters go
// along as a hint under _meta, as benchflow has it.
func project(servers []tasks.MCPServer, space *sandbox.Space) (out []acp.MCPServer, hosted []string) {
	for _, s := range servers {
		p := acp.MCPServer{Name: s.Name, Meta: filters(s)}
		switch s.Transport {
		case tasks.TransportStdio:
			p.Transport, p.Command, p.Args, p.Env = acp.TransportStdio, s.Command, s.Args, keyValues(s.Env)
			if s.Cwd != "" {
				p.Cwd = space.Path(s.Cwd)
			}
		case tasks.TransportSSE:
			p.Transport, p.URL, p.Headers = acp.TransportSSE, s.URL, keyValues(s.Headers)
		default:
			p.Transport, p.URL, p.Headers = acp.TransportHTTP, s.URL, keyValues(s.Headers)
		}
		if s.Started() {
			hosted = append(hosted, s.Name)
		}
		out = append(out, p)
	}
	return out, hosted
}

func keyValues(in []tasks.KeyValue) []acp.KeyValue {
	var out []acp.KeyValue
	for _, kv := range in {
		out = append(out, acp.KeyValue(kv))
	}
	return out
}

func fileExists(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// environmentOf makes the environment of the claimed rollout, without anything in it.
func (w *worker) environmentOf() (*environment, error) {
	e := &environment{root: w.root(), isolation: w.plan.Isolation, lookup: w.plan.Lookup(w.o.Resolve), hidden: []string{w.o.Store.Dir()}}
	for _, hidden := range w.plan.Hidden {
		e.hidden = append(e.hidden, w.within(hidden))
	}
	if e.isolation == "" {
		e.isolation = sandbox.IsolationBwrap
	}
	ref := w.evaluation.Task
	if ref == nil {
		e.servers = slices.Clone(w.plan.MCPServers)
		return e, e.resolve()
	}
	dir := w.within(ref.Dir)
	digest, err := tasks.Digest(dir)
	if err != nil {
		return nil, fault.Newf(fault.Setup, "the task directory %s cannot be read: %v", ref.Dir, err)
	}
	if digest != ref.Digest {
		return nil, fault.Newf(fault.Setup, "the task directory %s is not what it was when the run was planned; plan a new run", ref.Dir)
	}
	task, problems := tasks.Load(dir)
	if err := problems.Err(false); err != nil {
		return nil, fault.New(fault.Setup, err.Error())
	}
	e.task = task
	e.servers = tasks.MergeServers(task.Config.Environment.MCPServers, w.plan.MCPServers)
	e.hidden = append(e.hidden, dir)
	return e, e.resolve()
}

// within is a path that the plan has relative to the eval set's folder.
func (w *worker) within(rel string) string {
	if rel = filepath.FromSlash(rel); filepath.IsAbs(rel) {
		return rel
	}
	return filepath.Join(w.plan.baseDir, rel)
}
