package tasks

import "path/filepath"

// Image is the image in which a task, or the tests of a stage, are to run.
type Image struct {
	// Key says where the task names it: a key of task.toml or a file.
	Key string
	// Reference is the name of an existing image; empty for one that is only built.
	Reference string
	// Context is the folder with the Dockerfile that makes the image; empty if there is none. An image
	// with a Reference too is built only if nobody has the image of that name.
	Context string
	// Hidden are folders that the build must not see, although Context may contain them: the tests and
	// solutions, for the image of the agent.
	Hidden []string
	// BuildTimeoutSec limits a build and a pull.
	BuildTimeoutSec Seconds
	// StorageMB is how much its files may take.
	StorageMB int
}

// Image returns the image in which the agent works; nil for a task without one.
func (t *Task) Image() *Image {
	i := t.image(&t.Config.Environment, "environment", filepath.Join(t.Dir, "environment"))
	if i == nil {
		return nil
	}
	dirs := []string{t.Dir}
	for _, s := range t.Config.Steps {
		dirs = append(dirs, filepath.Join(t.Dir, "steps", s.Name))
	}
	for _, dir := range dirs {
		for _, name := range []string{"tests", "verifier", "solution", "oracle"} {
			if path := filepath.Join(dir, name); isFolder(path) {
				i.Hidden = append(i.Hidden, path)
			}
		}
	}
	return i
}

// VerifierImage returns the image of the tests of a stage, if they have one of their own; nil if
// they run in that of the agent.
func (t *Task) VerifierImage(s *Stage) *Image {
	if !s.Verifier.Separate() {
		return nil
	}
	e := s.Verifier.Environment
	if e == nil {
		e = &t.Config.Environment
		e = &Environment{BuildTimeoutSec: e.BuildTimeoutSec, StorageMB: e.StorageMB}
	}
	dir := ""
	for _, tests := range s.Tests { // those of a step go before those of the task
		if isFile(filepath.Join(tests, "Dockerfile")) {
			dir = tests
		}
	}
	return t.image(e, "verifier.environment", dir)
}

func (t *Task) image(e *Environment, usual, dir string) *Image {
	i := &Image{BuildTimeoutSec: e.BuildTimeoutSec, StorageMB: e.StorageMB}
	if file := filepath.Join(dir, "Dockerfile"); dir != "" && isFile(file) {
		i.Context, i.Key = dir, t.relative(file)
	}
	if name := e.Prebuilt(i.Context != ""); name != "" {
		i.Reference, i.Key = name, e.keyIn(usual)+".docker_image"
	}
	if i.Key == "" {
		return nil
	}
	return i
}

// Images returns all images of the task, that of the agent first, each once.
func (t *Task) Images() (all []Image) {
	add := func(i *Image) {
		if i == nil {
			return
		}
		for _, other := range all {
			if other.Reference == i.Reference && other.Context == i.Context {
				return
			}
		}
		all = append(all, *i)
	}
	add(t.Image())
	stages := t.Stages()
	for i := range stages {
		add(t.VerifierImage(&stages[i]))
	}
	return all
}
