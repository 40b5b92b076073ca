package pyagent

import (
	"context"
	"os"
	"path/filepath"
	"sync"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/agent/function"
	"github.com/evalrun/evalrun/internal/agent/program"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/sandbox"
	"github.com/evalrun/evalrun/sdk/python"
)

// starter makes the commands of an agent's workers.
type starter struct {
	entry    agent.Entry
	settings *Settings
	opts     agent.Options

	mu sync.Mutex
	// python is the interpreter, once it was found.
	python string
}

func newAgent(e agent.Entry, opts agent.Options) agent.Agent {
	s := &starter{entry: e, settings: e.Settings.(*Settings), opts: opts}
	return function.NewKept(e, s.command, s.settings.Keep && !e.Fresh, opts)
}

// quiet are variables that keep frameworks from sending what an evaluation does elsewhere. The
// environment and the project's own variables may say otherwise.
var quiet = []string{"UIPATH_TELEMETRY_ENABLED=false", "OPENAI_AGENTS_DISABLE_TRACING=1"}

// command returns the command of a worker.
func (s *starter) command(ctx context.Context, seg agent.Segment) (sandbox.Command, *fault.Fault) {
	dir := s.entry.Cwd
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(seg.BaseDir, dir)
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return sandbox.Command{}, fault.Newf(fault.Start, "the agent's working directory: there is no folder %s", dir)
	}
	env, bad := function.Environ(s.entry, s.opts, seg)
	if bad != nil {
		return sandbox.Command{}, bad
	}
	env = append(append(append([]string{}, quiet...), Variables(dir, s.entry.Type)...), env...)
	interpreter, bad := s.found(ctx, dir, env)
	if bad != nil {
		return sandbox.Command{}, bad
	}
	return workerOf(interpreter, dir, env, s.entry.Type, s.settings.Entrypoint)
}

// workerOf returns the command of a worker.
func workerOf(interpreter, dir string, env []string, arguments ...string) (sandbox.Command, *fault.Fault) {
	files, err := program.Unpack(python.Files, "python")
	if err != nil {
		return sandbox.Command{}, fault.Newf(fault.Internal, "keep the files that run code in Python: %v", err)
	}
	command := []string{interpreter, "-u", filepath.Join(files, "evalrun")}
	return sandbox.Command{Path: interpreter, Args: append(command, arguments...), Dir: dir, Env: env}, nil
}

// Worker returns the command of a worker of another kind than agents, in the folder of its project.
// The interpreter is that of the project if name is empty.
func Worker(ctx context.Context, kind, name, dir string) (sandbox.Command, *fault.Fault) {
	env := append(append([]string{}, quiet...), sandbox.Environ(os.Environ())...)
	path, bad := interpreter(ctx, name, dir, env)
	if bad != nil {
		return sandbox.Command{}, bad
	}
	return workerOf(path, dir, env, kind)
}

// found returns the interpreter, which is looked for once.
func (s *starter) found(ctx context.Context, dir string, env []string) (path string, bad *fault.Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.python == "" {
		s.python, bad = interpreter(ctx, s.settings.Python, dir, env)
	}
	return s.python, bad
}
