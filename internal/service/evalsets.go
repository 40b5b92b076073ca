package service

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/runner"
)

// EvalSets are the eval sets that may be started by name. They are the files of one folder, or
// files that have names. The zero value has none.
type EvalSets struct {
	// Dir is the folder, absolute; empty if the files have names. A set's name is the name of its file
	// without the extension.
	Dir   string
	files map[string]string
}

// extensions lists the possible extensions of an eval set's file, in the order in which they are
// tried.
var extensions = []string{".json", ".yaml", ".yml"}

var setNamePattern = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]*$`)

// setName reports whether a text may be the name of an eval set. Such a name cannot lead to another
// folder.
func setName(name string) bool { return len(name) <= 128 && setNamePattern.MatchString(name) }

// Names returns the names of the sets, sorted.
func (e EvalSets) Names() ([]string, error) {
	if e.Dir == "" {
		return slices.Sorted(maps.Keys(e.files)), nil
	}
	entries, err := os.ReadDir(e.Dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, one := range entries {
		ext := filepath.Ext(one.Name())
		name := strings.TrimSuffix(one.Name(), ext)
		if slices.Contains(extensions, ext) && setName(name) && !slices.Contains(names, name) {
			if path, err := e.find(name); err != nil {
				return nil, err
			} else if path != "" {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names, nil
}

// Find returns the path of the file of a set. The error is a *runner.InputError if there is none.
// In a folder, a link that leads out of it counts as nothing.
func (e EvalSets) Find(name string) (string, error) {
	path, err := e.find(name)
	if err == nil && path == "" {
		err = e.unknown(name)
	}
	return path, err
}

// find is Find, but returns an empty path if there is no such set.
func (e EvalSets) find(name string) (string, error) {
	if e.Dir == "" || !setName(name) {
		return e.files[name], nil
	}
	root, err := os.OpenRoot(e.Dir)
	if err != nil {
		return "", err
	}
	defer func() { _ = root.Close() }() // it is only read
	for _, ext := range extensions {
		info, err := root.Stat(name + ext)
		if err == nil && info.Mode().IsRegular() {
			return filepath.Join(e.Dir, name+ext), nil
		}
	}
	return "", nil
}

func (e EvalSets) unknown(name string) error {
	names, err := e.Names()
	if err != nil {
		return err
	}
	const most = 20
	names = names[:min(most, len(names))]
	has := "none (evalSets in the file of --config names them)"
	if len(names) > 0 {
		has = strings.Join(names, ", ")
	}
	return &runner.InputError{Err: &unknownSetError{name: name, has: has, suggestion: input.Suggest(name, names)}}
}

// unknownSetError says that there is no eval set with a name.
type unknownSetError struct{ name, has, suggestion string }

func (e *unknownSetError) Error() string {
	return "there is no eval set " + quote(e.name) + "; there are: " + e.has + e.suggestion
}

// base is the folder to which the paths of an uploaded set are relative. The set is treated as one
// of the folder, so that it may name the evaluators beside that.
func (e EvalSets) base(otherwise string) string {
	if e.Dir != "" {
		return e.Dir
	}
	return otherwise
}
