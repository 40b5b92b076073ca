package nodeagent

import (
	"context"
	"os"
	"path/filepath"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/agent/function"
	"github.com/evalrun/evalrun/internal/agent/program"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/sandbox"
	"github.com/evalrun/evalrun/sdk/typescript"
)

// starter makes the commands of an agent's workers.
type starter struct {
	entry    agent.Entry
	settings *Settings
	opts     agent.Options
}

func newAgent(e agent.Entry, opts agent.Options) agent.Agent {
	s := &starter{entry: e, settings: e.Settings.(*Settings), opts: opts}
	return function.NewKept(e, s.command, s.settings.Keep && !e.Fresh, opts)
}

// command returns the command of a worker.
func (s *starter) command(_ context.Context, seg agent.Segment) (sandbox.Command, *fault.Fault) {
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
	env = append(variables(s.settings, dir), env...)
	node, bad := find(s.settings.Node, dir, env)
	if bad != nil {
		return sandbox.Command{}, bad
	}
	files, err := program.Unpack(typescript.Files, "node")
	if err != nil {
		return sandbox.Command{}, fault.Newf(fault.Internal, "keep the file that runs code in Node: %v", err)
	}
	worker := filepath.Join(files, "evalrun.mjs")
	return sandbox.Command{Path: node, Args: []string{node, worker, s.settings.Entrypoint}, Dir: dir, Env: env}, nil
}

// find finds the Node of a project: the one with the given name, one that is installed as a package in
// the project or above it, and last the one in PATH.
func find(name, dir string, env []string) (string, *fault.Fault) {
	if name != "" {
		return program.Find(name, dir, env)
	}
	for folder := dir; ; folder = filepath.Dir(folder) {
		if path := filepath.Join(folder, "node_modules", ".bin", "node"); program.NotExecutable(path) == "" {
			return path, nil
		}
		if _, err := os.Stat(filepath.Join(folder, ".git")); err == nil || folder == filepath.Dir(folder) {
			break
		}
	}
	path, bad := program.Find("node", dir, env)
	if bad != nil {
		bad.Message += `; install Node.js 22.18 or later, or name it with the key "node"`
	}
	return path, bad
}

// Program finds the Node of the project in an absolute folder.
func Program(dir string) (string, *fault.Fault) { return find("", dir, os.Environ()) }
