package workspace

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/sandbox"
)

// ofTheSystem are the folders that every space shows.
var ofTheSystem = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt"}

// besideTheSystem binds what a task puts into folders of the system. The rest of what is in the
// root is seen anyway. The agent may have made folders and links in the root where this machine has
// nothing.
func besideTheSystem(root string) (binds []sandbox.Bind, err error) {
	for _, dir := range ofTheSystem {
		info, err := os.Lstat(filepath.Join(root, dir))
		if real, none := filepath.EvalSymlinks(dir); err == nil && none == nil && info.IsDir() {
			more, err := overlay(filepath.Join(root, dir), real)
			if err != nil {
				return nil, err
			}
			binds = append(binds, more...)
		}
	}
	return binds, nil
}

// overlay binds what is in a folder of this machine beside what the system has in the inside
// folder, of which nothing else is covered. A link is left out: it would be followed out of the
// environment.
func overlay(host, inside string) (binds []sandbox.Bind, err error) {
	entries, err := os.ReadDir(host)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		if entry.Type()&os.ModeSymlink != 0 {
			continue
		}
		from, at := filepath.Join(host, entry.Name()), path.Join(inside, entry.Name())
		if real, err := filepath.EvalSymlinks(at); err == nil && entry.IsDir() && isOfTheSystem(at) && isOfTheSystem(real) { // /bin is a link to /usr/bin
			if info, err := os.Stat(real); err == nil && info.IsDir() {
				more, err := overlay(from, real)
				if err != nil {
					return nil, err
				}
				binds = append(binds, more...)
				continue
			}
		}
		binds = append(binds, sandbox.Bind{Host: from, Inside: at, Writable: true})
	}
	return binds, nil
}

func isOfTheSystem(inside string) bool {
	return slices.ContainsFunc(ofTheSystem, func(dir string) bool { return inside == dir || strings.HasPrefix(inside, dir+"/") })
}
