package pyagent

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/agent/function"
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
	env = append(append(append([]string{}, quiet...), environ(variables(s.entry, dir))...), env...)
	interpreter, bad := s.found(ctx, dir, env)
	if bad != nil {
		return sandbox.Command{}, bad
	}
	return workerOf(interpreter, dir, env, s.entry.Type, s.settings.Entrypoint)
}

// workerOf returns the command of a worker.
func workerOf(interpreter, dir string, env []string, arguments ...string) (sandbox.Command, *fault.Fault) {
	worker, err := files()
	if err != nil {
		return sandbox.Command{}, fault.Newf(fault.Internal, "keep the files that run code in Python: %v", err)
	}
	return sandbox.Command{Path: interpreter, Args: append([]string{interpreter, "-u", worker}, arguments...), Dir: dir,
		Env: env}, nil
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

// files returns the folder with the package evalrun, which it writes into the user's cache under the
// sum of its content.
var files = sync.OnceValues(func() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	contents := map[string][]byte{}
	sum := sha256.New()
	err = fs.WalkDir(python.Files, "evalrun", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := python.Files.ReadFile(path)
		contents[path] = data
		_, _ = fmt.Fprintf(sum, "%s %d\n%s", path, len(data), data)
		return err
	})
	if err != nil {
		return "", err
	}
	parent := filepath.Join(cache, "evalrun", "python")
	dir := filepath.Join(parent, hex.EncodeToString(sum.Sum(nil)[:8]))
	if same(dir, contents) {
		return filepath.Join(dir, "evalrun"), nil
	}
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return "", err
	}
	tmp, err := os.MkdirTemp(parent, "new-")
	if err == nil {
		err = os.Mkdir(filepath.Join(tmp, "evalrun"), 0o700)
	}
	for path, data := range contents {
		err = errors.Join(err, os.WriteFile(filepath.Join(tmp, filepath.FromSlash(path)), data, 0o600))
	}
	if err == nil && os.Rename(tmp, dir) != nil { // it is there: another process was faster, or it was changed
		if !same(dir, contents) {
			err = errors.Join(os.RemoveAll(dir), os.Rename(tmp, dir))
		}
	}
	return filepath.Join(dir, "evalrun"), errors.Join(err, os.RemoveAll(tmp))
})

// same reports whether a folder has these files.
func same(dir string, contents map[string][]byte) bool {
	for path, data := range contents {
		there, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(path)))
		if err != nil || !bytes.Equal(there, data) {
			return false
		}
	}
	return true
}
