package tasks

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Copy is one file or folder that is put into the environment before the agent starts. A file
// becomes Destination; the content of a folder is put below Destination, beside the files that are
// there.
type Copy struct {
	// Source is a path on this machine, Destination an absolute one in the environment.
	Source, Destination string
}

// Workdir returns the working directory of the agent of a task without an image:
// environment.workdir, else /app.
func (t *Task) Workdir() string {
	return or(t.Config.Environment.Workdir, defaultWorkdir)
}

// Files returns the copies to make before the agent of a task without an image starts: all of
// environment/, into the working directory. Nothing outside of environment/ is among it, not even
// through a link.
func (t *Task) Files() ([]Copy, error) {
	dir := filepath.Join(t.Dir, "environment")
	if !isFolder(dir) {
		return nil, nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close() //nolint:errcheck // it was only read from
	var copies []Copy
	for _, name := range contextFiles(root.FS()) {
		if _, err := root.Stat(name); err != nil {
			return nil, fmt.Errorf("%s: cannot be copied: %s", filepath.Join(dir, name), reason(err))
		}
		copies = append(copies, Copy{Source: filepath.Join(dir, name), Destination: path.Join(t.Workdir(), name)})
	}
	return copies, nil
}

// contextFiles returns the top entries of environment/ that are not about building it.
func contextFiles(dir fs.FS) []string {
	entries, _ := fs.ReadDir(dir, ".") // a folder that cannot be read is found missing where it is needed
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
