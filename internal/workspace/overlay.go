package workspace

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/sandbox"
)

// ofTheSystem lists the folders of this machine that every sandbox shows.
var ofTheSystem = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt"}

// besideTheSystem binds the files that a task puts into folders of the system; everything else in
// the root is visible anyway. The agent may have made folders and links in the root that this
// machine does not have.
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

// overlay binds the entries of a folder one by one into an inside folder, so that the system's own
// entries beside them stay visible. It leaves links out: they could lead out of the sandbox.
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
		// /bin is a link to /usr/bin
		if real, err := filepath.EvalSymlinks(at); err == nil && entry.IsDir() && isOfTheSystem(at) && isOfTheSystem(real) {
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
	return slices.ContainsFunc(ofTheSystem, func(dir string) bool {
		return inside == dir || strings.HasPrefix(inside, dir+"/")
	})
}
