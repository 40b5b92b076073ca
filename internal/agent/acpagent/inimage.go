package acpagent

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/agent/program"
	"github.com/evalrun/evalrun/internal/sandbox"
)

// selfContained are interpreters that need nothing beside their own file but the C library. Others
// are those of the image.
var selfContained = []string{"node", "bun", "deno"}

// placed is a program of this machine as it is started in an image.
type placed struct {
	path string
	args []string
	env  []string
}

// intoImage puts an agent's program with what belongs to it into the root of an image, read-only and
// at places of their own, so that nothing of them is among what the agent leaves. shown are the
// folders that the program needs. The image's own programs come first in PATH, except for the
// interpreter of the agent itself.
func (l *Launch) intoImage(path string, shown []string) placed {
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
	switch {
	case interpreter != "" && slices.Contains(selfContained, name):
		if file, f := program.Find(interpreter, "/", []string{"PATH=" + hostPath()}); f == nil {
			out.args = slices.Concat([]string{name, out.path}, out.args[1:])
			out.path = l.place(file)
		}
	case slices.Contains(selfContained, filepath.Base(path)):
		out.path = l.place(path)
	case out.path == path && !slices.Contains(SettingsOf(l.Entry).Visible, path):
		// one of the system's: the image has its own
		out.path = filepath.Base(path)
	}
	if l.Entry.Env["PATH"] == "" {
		own := ""
		for _, e := range l.Environ {
			if value, ok := strings.CutPrefix(e, "PATH="); ok {
				own = value
			}
		}
		out.env = []string{"PATH=" + strings.Join([]string{own, filepath.Dir(inside(path)), sandbox.InsidePrograms}, ":")}
	}
	return out
}

// place puts one program into the image, and returns where it is there.
func (l *Launch) place(file string) string {
	at := sandbox.InsidePrograms + "/" + filepath.Base(file)
	l.Sandbox.Config.Binds = append(l.Sandbox.Config.Binds, sandbox.Bind{Host: file, Inside: at})
	return at
}
