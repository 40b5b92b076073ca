package sandbox

import (
	"bytes"
	"slices"
	"strings"
)

// Environ returns the entries of an environment that are not evalrun's own: those whose names do
// not begin with EVALRUN_. Processes that evalrun starts get these, and of evalrun's variables only
// those that are meant for them.
func Environ(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(e string) bool { return strings.HasPrefix(e, "EVALRUN_") })
}

// without returns the entries of env that do not set name.
func without(env []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(e string) bool { return strings.HasPrefix(e, name+"=") })
}

// lookup returns the value of a variable, empty if there is none. Of several entries with its name
// the last counts.
func lookup(env []string, name string) (value string) {
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, name+"="); ok {
			value = v
		}
	}
	return value
}

// marked reports whether an environment, as the system shows it with a NUL after each entry, bears
// one of the markers.
func marked(environ []byte, markers map[string]bool) bool {
	for len(environ) > 0 {
		entry, rest, whole := bytes.Cut(environ, []byte{0})
		if !whole {
			return false // cut off: a longer id could begin alike
		}
		for _, name := range []string{MarkerVar, WorkerVar} {
			if value, ok := bytes.CutPrefix(entry, []byte(name+"=")); ok && markers[string(value)] {
				return true
			}
		}
		environ = rest
	}
	return false
}
