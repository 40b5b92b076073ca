package program

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/input"
)

// Check says why the program of an entry cannot be found on this machine; nil if it can, or if only
// a start can tell. The entry's cwd is relative to dir. passed has the variables that agents are
// given.
func Check(e agent.Entry, dir string, passed map[string]string, o agent.Options) *fault.Fault {
	if len(e.Command) == 0 {
		return nil
	}
	env := []string{"PATH=" + os.Getenv("PATH")}
	own, inherited := map[string]string{}, passed
	if path, ok := e.Env["PATH"]; ok {
		value, unknown := o.Expand(path)
		if unknown != "" || strings.Contains(value, "{") { // a placeholder has no value yet
			return nil
		}
		own["PATH"] = value
	}
	if !e.Needs().Sandbox { // the passed variables then have precedence
		own, inherited = inherited, own
	}
	for _, vars := range []map[string]string{inherited, own} {
		if path, ok := vars["PATH"]; ok {
			env = append(env, "PATH="+path)
		}
	}
	dir = folderOf(e, dir)
	var f *fault.Fault
	for _, path := range slices.Backward(env) { // an agent in an image is looked up in the PATH of this process
		if _, f = Find(e.Command[0], dir, []string{path}); f == nil {
			return nil
		}
	}
	_, f = Find(e.Command[0], dir, env)
	return f
}

// folderOf returns the folder in which the program of an entry is started. The entry's cwd is
// relative to dir.
func folderOf(e agent.Entry, dir string) string {
	if filepath.IsAbs(e.Cwd) {
		return e.Cwd
	}
	return filepath.Join(dir, e.Cwd)
}

// interpreters matches programs whose first argument is a file, unless it is an option.
var interpreters = regexp.MustCompile(`^(python|python3|python3\.\d+|node|bun|ruby|perl|sh|bash|zsh|php|Rscript)$`)

// CheckScript says that the script of an agent without a sandbox does not exist, as in python3
// agent.py; nil if it exists, or if the command names none. It knows only some interpreters, so it
// is good only for a warning.
func CheckScript(e agent.Entry, dir string) *fault.Fault {
	if e.Needs().Sandbox || len(e.Command) < 2 || !interpreters.MatchString(filepath.Base(e.Command[0])) {
		return nil
	}
	script := e.Command[1]
	if filepath.Ext(script) == "" || strings.ContainsAny(script, "{}$ ") || strings.HasPrefix(script, "-") {
		return nil // this is an option, a command of the program, or not known yet
	}
	path := script
	if !filepath.IsAbs(path) {
		path = filepath.Join(folderOf(e, dir), path)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return fault.Newf(fault.Start, "there is no file %s for %s%s", path, e.Command[0], input.NearFile(path))
}
