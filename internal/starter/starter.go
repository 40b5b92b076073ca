// Package starter writes a first project: an eval set with its data, an agent, and a workflow for CI.
package starter

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

//go:embed all:project
var project embed.FS

// ErrThere is the error of a folder that has one of the files already.
var ErrThere = errors.New("nothing was written, as nothing is overwritten")

// Write writes the project into a folder, which it makes if need be, and returns the paths of the
// files, relative to it. If one of them is there already it writes nothing.
func Write(dir string) (files []string, err error) {
	tree, err := fs.Sub(project, "project")
	if err != nil {
		return nil, err
	}
	var there []string
	err = fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files = append(files, filepath.FromSlash(name))
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			there = append(there, filepath.Join(dir, name))
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(there) > 0 {
		return nil, fmt.Errorf("%w; there already: %s; give another folder", ErrThere, strings.Join(there, ", "))
	}
	for _, name := range files {
		if err := write(tree, name, filepath.Join(dir, name)); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// write copies a file. What has come in between is not overwritten.
func write(tree fs.FS, name, path string) error {
	data, err := fs.ReadFile(tree, filepath.ToSlash(name))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}
