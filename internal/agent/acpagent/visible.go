package acpagent

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/agent/program"
)

// visible returns the folders that an environment has to show for a program to run there: its
// installation, that of the interpreter in its first line, and those of the files among its
// arguments. Paths in the system's own folders are visible anyway, and harmless here.
func visible(path string, args, env []string) []string {
	var out []string
	add := func(file string) {
		for _, p := range installations(file) {
			if !slices.Contains(out, p) {
				out = append(out, p)
			}
		}
	}
	add(path)
	if interpreter := interpreterOf(path); interpreter != "" {
		if path, f := program.Find(interpreter, "/", env); f == nil {
			add(path)
		}
	}
	for _, arg := range args {
		if info, err := os.Stat(arg); filepath.IsAbs(arg) && err == nil && info.Mode().IsRegular() {
			add(arg)
		}
	}
	return out
}

// maxLinks is as many links as Linux follows.
const maxLinks = 40

// installations returns the folders to which a program's file belongs: those of the links by which
// it is called, and that of the file itself.
func installations(path string) []string {
	paths := []string{path}
	for range maxLinks {
		to, err := os.Readlink(path)
		if err != nil {
			break
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(path), to)
		}
		path = to
		paths = append(paths, path)
	}
	if real, err := filepath.EvalSymlinks(path); err == nil && real != path {
		paths = append(paths, real)
	}
	var out []string
	for _, p := range paths {
		if dir := installation(p); dir != "" {
			out = append(out, dir)
		}
	}
	return out
}

// installation returns the folder of a program and its files. For an npm package it is the folder
// that holds node_modules; for a program in a folder bin, the folder above. It is never the home of
// a user, or a folder that holds one.
func installation(path string) string {
	dir := filepath.Dir(path)
	if before, _, ok := strings.Cut(path, "/node_modules/"); ok {
		dir = before
		if holdsHome(dir) {
			dir += "/node_modules" // the package is in ~/node_modules, with its dependencies
		}
	} else if filepath.Base(dir) == "bin" && !holdsHome(filepath.Dir(dir)) { // in a home, only bin itself is shown
		dir = filepath.Dir(dir)
	}
	for _, system := range []string{"/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc/alternatives"} {
		if dir == system || strings.HasPrefix(dir, system+"/") {
			return ""
		}
	}
	if holdsHome(dir) || dir == "/opt" || dir == filepath.Dir(path) && isExecutable(path) {
		return path // a single program needs nothing beside it; "visible" can name more
	}
	return dir
}

// isExecutable reports whether a file is a program of its own and not a script.
func isExecutable(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }() // only read
	magic := make([]byte, 4)
	_, err = io.ReadFull(f, magic)
	return err == nil && string(magic) == "\x7fELF"
}

// holdsHome reports whether a folder is the user's home, or holds it.
func holdsHome(dir string) bool {
	home, err := os.UserHomeDir()
	return err == nil && strings.HasPrefix(filepath.Clean(home)+"/", strings.TrimSuffix(dir, "/")+"/")
}

// interpreterOf returns the program that the first line of a script names, without a path if it
// must be looked up.
func interpreterOf(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }() // only read
	line, err := bufio.NewReaderSize(f, 512).ReadString('\n')
	rest, ok := strings.CutPrefix(line, "#!")
	if err != nil || !ok {
		return ""
	}
	words := strings.Fields(rest)
	if len(words) > 1 && filepath.Base(words[0]) == "env" {
		words = slices.DeleteFunc(words[1:], func(w string) bool {
			return strings.HasPrefix(w, "-") || strings.Contains(w, "=")
		})
	}
	if len(words) == 0 {
		return ""
	}
	return words[0]
}
