package acpagent

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/agent/program"
	"github.com/evalrun/evalrun/internal/sandbox"
)

// selfContained lists interpreters that need only their own file and the C library. Other
// interpreters come from the image.
var selfContained = []string{"node", "bun", "deno"}

// placed says how a program of this machine is started in an image.
type placed struct {
	path string
	args []string
	env  []string
}

// intoImage binds an agent's program and its files into the root of an image. They are read-only
// and in separate places, so that they are not among the files that the agent leaves. shown are the
// folders that the program needs. The image's own programs come first in PATH, except for the
// interpreter of the agent itself.
func (l *Launch) intoImage(ctx context.Context, path string, shown []string) (placed, error) {
	config := &l.Sandbox.Config
	config.Binds = slices.Clone(config.Binds)
	for _, dir := range shown {
		config.Binds = append(config.Binds, sandbox.Bind{Host: dir, Inside: sandbox.InsideHost + dir})
	}
	inside := func(p string) string {
		if slices.ContainsFunc(shown, func(dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }) {
			return sandbox.InsideHost + p
		}
		return p
	}
	out := placed{path: inside(path), args: slices.Clone(l.Entry.Command)}
	for i := range out.args {
		out.args[i] = inside(out.args[i])
	}
	interpreter := interpreterOf(path)
	name := filepath.Base(interpreter)
	programs, err := sandbox.InsidePrograms, error(nil)
	switch {
	case interpreter != "" && slices.Contains(selfContained, name):
		file, missing := program.Find(interpreter, "/", []string{"PATH=" + hostPath()})
		if missing != nil && (name != "node" || l.imageHasNode()) {
			break
		}
		out.args = slices.Concat([]string{name, out.path}, out.args[1:])
		out.path, err = l.place(ctx, name, file)
		programs = filepath.Dir(out.path)
	case slices.Contains(selfContained, filepath.Base(path)):
		out.path, err = l.place(ctx, filepath.Base(path), path)
		programs = filepath.Dir(out.path)
	case out.path == path && !slices.Contains(SettingsOf(l.Entry).Visible, path):
		// This is a program of the system, and the image has its own.
		out.path = filepath.Base(path)
	}
	if l.Entry.Env["PATH"] == "" {
		own := ""
		for _, e := range l.Environ {
			if value, ok := strings.CutPrefix(e, "PATH="); ok {
				own = value
			}
		}
		out.env = []string{"PATH=" + strings.Join([]string{own, filepath.Dir(inside(path)), programs}, ":")}
	}
	return out, err
}

// place brings an interpreter of this machine into the image, and returns its path there. Where Node.js is missing
// here, or does not run there, the image gets one of evalrun's.
func (l *Launch) place(ctx context.Context, name, file string) (string, error) {
	at := sandbox.InsidePrograms + "/" + name
	bind := sandbox.Bind{Host: file, Inside: at}
	if name == "node" {
		fits, err := l.runsInImage(file)
		if err == nil && !fits {
			bind.Inside = sandbox.InsidePrograms + "/node-" + nodeVersion
			at = bind.Inside + "/" + nodeProgram
			bind.Host, err = l.ownNode(ctx)
		}
		if err != nil {
			return "", err
		}
	}
	l.Sandbox.Config.Binds = append(l.Sandbox.Config.Binds, bind)
	return at, nil
}
