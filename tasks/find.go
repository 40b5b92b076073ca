package tasks

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// IsDir reports whether path is a task directory: a folder with a task.toml.
func IsDir(path string) bool { return isFile(filepath.Join(path, configFile)) }

// Find returns the task directories that the patterns name, sorted, each once. A pattern is a task
// directory, its task.toml, a dataset (a folder of task directories, or one with such a folder
// named tasks in it), or a glob of these. A pattern that names no task at all is an error.
func Find(patterns []string) ([]string, error) {
	var found []string
	seen := map[string]bool{}
	for _, pattern := range patterns {
		dirs, err := find(pattern)
		if err != nil {
			return nil, err
		}
		for _, dir := range dirs {
			absolute, err := filepath.Abs(dir)
			if err != nil {
				return nil, err
			}
			if !seen[absolute] {
				seen[absolute] = true
				found = append(found, dir)
			}
		}
	}
	slices.Sort(found)
	return found, nil
}

func find(pattern string) ([]string, error) {
	_, err := os.Stat(pattern)
	if err == nil {
		dirs := tasksIn(pattern)
		if dirs == nil {
			return nil, fmt.Errorf(
				"%s: there is no task here: expected a folder with task.toml, or a dataset, which has task directories in it or in tasks/%s",
				pattern, nativeHint(pattern))
		}
		return dirs, nil
	}
	if !strings.ContainsAny(pattern, `*?[\`) {
		return nil, fmt.Errorf("%s: %s: expected a task directory, a dataset, or a glob of these", pattern, reason(err))
	}
	matches, err := filepath.Glob(pattern)
	if err != nil {
		return nil, fmt.Errorf("%s: not a valid glob: %w", pattern, err)
	}
	var dirs []string
	for _, match := range matches {
		if isHidden(match) && !isHidden(pattern) { // as in a shell
			continue
		}
		dirs = append(dirs, tasksIn(match)...)
	}
	if dirs == nil {
		return nil, fmt.Errorf("%s: the glob matches no task directory and no dataset", pattern)
	}
	return dirs, nil
}

// tasksIn returns the task directory at path, or those of the dataset there.
func tasksIn(path string) []string {
	path = filepath.Clean(path)
	if filepath.Base(path) == configFile && isFile(path) {
		path = filepath.Dir(path)
	}
	if IsDir(path) {
		return []string{path}
	}
	for _, folder := range []string{path, filepath.Join(path, "tasks")} {
		var dirs []string
		entries, _ := os.ReadDir(folder) // a folder that cannot be read has no tasks for us
		for _, e := range entries {
			if dir := filepath.Join(folder, e.Name()); !isHidden(dir) && IsDir(dir) {
				dirs = append(dirs, dir)
			}
		}
		if dirs != nil {
			return dirs
		}
	}
	return nil
}

func isHidden(path string) bool { return strings.HasPrefix(filepath.Base(path), ".") }

// nativeHint returns a hint if a folder has benchflow's own format, whose one file is task.md.
func nativeHint(dir string) string {
	if isFile(filepath.Join(dir, "task.md")) {
		return "; task.md is not read, but `bench tasks export` makes a task.toml of it"
	}
	return ""
}

func baseName(dir string) string {
	if absolute, err := filepath.Abs(dir); err == nil {
		return filepath.Base(absolute)
	}
	return filepath.Base(dir)
}
