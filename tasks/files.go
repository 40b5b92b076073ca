package tasks

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Copy is one thing that is put into the environment before the agent starts. A file becomes
// Destination; of a folder the content is put below Destination, beside what is there.
type Copy struct {
	// Source is a path on this machine, Destination an absolute one in the environment.
	Source, Destination string
}

// Dockerfile reads environment/Dockerfile; nil if there is none.
func (t *Task) Dockerfile() (*Dockerfile, error) {
	file := filepath.Join(t.Dir, "environment", "Dockerfile")
	if _, err := os.Lstat(file); err != nil {
		return nil, nil //nolint:nilerr // there is none
	}
	d, err := ReadDockerfile(file)
	if err != nil {
		return nil, err
	}
	return &d, nil
}

// Workdir is where the agent works: environment.workdir, else the Dockerfile's, else /app.
func (t *Task) Workdir() string {
	if t.Config.Environment.Workdir != "" {
		return t.Config.Environment.Workdir
	}
	if d, err := t.Dockerfile(); err == nil && d != nil && d.Workdir != "" {
		return d.Workdir
	}
	return defaultWorkdir
}

// Files says what is put where before the agent starts, in order: what the Dockerfile copies, or
// without one all of environment/, into the working directory. Nothing outside of environment/ is
// among it, not even through a link.
func (t *Task) Files() ([]Copy, error) {
	dir := filepath.Join(t.Dir, "environment")
	if !isFolder(dir) {
		return nil, nil
	}
	d, err := t.Dockerfile()
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close() //nolint:errcheck // it was only read from
	if d == nil {
		d = &Dockerfile{}
		for _, name := range contextFiles(root.FS()) {
			d.Copies = append(d.Copies, CopyInstruction{Sources: []string{name}, Destination: path.Join(t.Workdir(), name)})
		}
	}
	var copies []Copy
	for _, c := range d.Copies {
		for _, source := range c.Sources {
			// As in Docker, the context is the root of all paths: ".." at the top stays there.
			pattern := strings.TrimPrefix(path.Clean("/"+source), "/")
			names := []string{or(pattern, ".")}
			if c.Line > 0 && strings.ContainsAny(pattern, `*?[\`) {
				if names, err = fs.Glob(root.FS(), pattern); err != nil || names == nil {
					return nil, fmt.Errorf("%s:%d: nothing in environment/ matches %s", filepath.Join(dir, "Dockerfile"), c.Line, source)
				}
			}
			for _, name := range names {
				info, err := root.Stat(name)
				if err != nil {
					return nil, fmt.Errorf("%s: cannot be copied: %s", filepath.Join(dir, name), reason(err))
				}
				destination := c.Destination
				if !info.IsDir() && (c.Folder || len(names) > 1 || isFolder(destination)) { // the host's tree is the base image
					destination = path.Join(destination, path.Base(name))
				}
				copies = append(copies, Copy{Source: filepath.Join(dir, filepath.FromSlash(name)), Destination: destination})
			}
		}
	}
	return copies, nil
}

// contextFiles are the top entries of environment/ that are not about building it.
func contextFiles(dir fs.FS) []string {
	entries, _ := fs.ReadDir(dir, ".") // what cannot be read is found missing where it is needed
	var names []string
	for _, e := range entries {
		if e.Name() != "Dockerfile" && e.Name() != ".dockerignore" && !isCompose(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names
}

// composeFile is the one file in which Harbor looks for services.
const composeFile = "docker-compose.yaml"

func isCompose(name string) bool {
	return (strings.HasPrefix(name, "docker-compose") || strings.HasPrefix(name, "compose.")) &&
		(strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml"))
}
