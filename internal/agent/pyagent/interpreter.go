package pyagent

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/agent/program"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/sandbox"
)

// Interpreter finds the interpreter of the project in an absolute folder.
func Interpreter(dir string) (string, *fault.Fault) {
	return interpreter(context.Background(), "", dir, os.Environ())
}

// interpreter finds the interpreter of a project: the one with the given name, that of a virtual
// environment in the project or above it, the activated one, the one that uv or poetry has made, and
// last the one in PATH. A program that only leads to one, such as uv or a shim, takes long to start
// and ends apart from it, so it is asked once where the interpreter is.
func interpreter(ctx context.Context, name, dir string, env []string) (string, *fault.Fault) {
	if name != "" {
		path, bad := program.Find(name, dir, env)
		if bad != nil || strings.Contains(name, "/") {
			return path, bad
		}
		return ask(ctx, dir, env, path)
	}
	for folder := dir; ; folder = filepath.Dir(folder) {
		if path := filepath.Join(folder, ".venv", "bin", "python"); program.NotExecutable(path) == "" {
			return path, nil
		}
		if _, err := os.Stat(filepath.Join(folder, ".git")); err == nil || folder == filepath.Dir(folder) {
			break
		}
	}
	for _, variable := range env {
		if venv, ok := strings.CutPrefix(variable, "VIRTUAL_ENV="); ok && venv != "" {
			if path := filepath.Join(venv, "bin", "python"); program.NotExecutable(path) == "" {
				return path, nil
			}
		}
	}
	for _, tool := range []struct {
		lock string
		run  []string
	}{{"uv.lock", []string{"uv", "run", "--no-sync", "python"}}, {"poetry.lock", []string{"poetry", "run", "python"}}} {
		if _, err := os.Stat(filepath.Join(dir, tool.lock)); err != nil {
			continue
		}
		if path, bad := program.Find(tool.run[0], dir, env); bad == nil {
			return ask(ctx, dir, env, append([]string{path}, tool.run[1:]...)...)
		}
	}
	var bad *fault.Fault
	for _, name := range []string{"python3", "python"} {
		var path string
		if path, bad = program.Find(name, dir, env); bad == nil {
			return ask(ctx, dir, env, path)
		}
	}
	bad.Message += `; name the interpreter with the key "python"`
	return "", bad
}

// ask returns the interpreter that a command leads to.
func ask(ctx context.Context, dir string, env []string, command ...string) (string, *fault.Fault) {
	var out, said bytes.Buffer
	ended, err := sandbox.Run(ctx, sandbox.Command{
		Marker: "worker/python", Path: command[0], Dir: dir, Env: env, Stdout: &out, Stderr: &said,
		Args: append(command, "-c", "import sys; print(sys.executable)"), Shared: true, Tied: true,
	})
	path := strings.TrimSpace(out.String())
	switch {
	case ctx.Err() != nil:
		return "", agent.CauseFault(ctx)
	case err != nil:
		return "", fault.Newf(fault.Start, "cannot ask %s for its interpreter: %v", command[0], err)
	case !ended.State.Success() || !filepath.IsAbs(path):
		return "", fault.Newf(fault.Start, "cannot ask %s for its interpreter: %s; it printed:\n%s",
			strings.Join(command, " "), ended.State, program.CleanTail(append(out.Bytes(), said.Bytes()...)))
	}
	return path, nil
}
