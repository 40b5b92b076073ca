package program

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/fault"
)

// Check says why the program of an entry cannot be found on this machine; nil if it can, or if that
// shows only when it is started. dir is what the entry's cwd is relative to, passed are variables
// that agents are given.
func Check(e agent.Entry, dir string, passed map[string]string, o agent.Options) *fault.Fault {
	if len(e.Command) == 0 {
		return nil
	}
	env := []string{"PATH=" + os.Getenv("PATH")}
	own, inherited := map[string]string{}, passed
	if path, ok := e.Env["PATH"]; ok {
		value, unknown := o.Expand(path)
		if unknown != "" || strings.Contains(value, "{") { // a placeholder, for which there is nothing yet
			return nil
		}
		own["PATH"] = value
	}
	if e.Type == agent.TypeFunction { // of which the variables that are passed count more
		own, inherited = inherited, own
	}
	for _, vars := range []map[string]string{inherited, own} {
		if path, ok := vars["PATH"]; ok {
			env = append(env, "PATH="+path)
		}
	}
	if !filepath.IsAbs(e.Cwd) {
		dir = filepath.Join(dir, e.Cwd)
	} else {
		dir = e.Cwd
	}
	var f *fault.Fault
	for _, path := range slices.Backward(env) { // an agent in an image is looked for in PATH of this process
		if _, f = Find(e.Command[0], dir, []string{path}); f == nil {
			return nil
		}
	}
	_, f = Find(e.Command[0], dir, env)
	return f
}
