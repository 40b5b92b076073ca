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

// visible are the folders that an environment has to show for a program to run there: its
// installation, that of the interpreter which its first line names, and those of the files among
// its arguments. What lies in the system's own folders is seen anyway, and is harmless here.
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

// installations are the folders that a program's file belongs to: where the links are that it is
// called by, and where the file itself.
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

// installation is the folder of a program and what belongs to it: for a package of npm what holds
// node_modules, for a program in a folder bin the folder above it. It is never the home of a user,
// or a folder that holds one.
func installation(path string) string {
	dir := filepath.Dir(path)
	if before, _, ok := strings.Cut(path, "/node_modules/"); ok {
		dir = before
		if holdsHome(dir) {
			dir += "/node_modules" // ~/node_modules: with what the package needs
		}
	} else if filepath.Base(dir) == "bin" && !holdsHome(filepath.Dir(dir)) { // of ~/bin nothing but bin
		dir = filepath.Dir(dir)
	}
	for _, system := range []string{"/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc/alternatives"} {
		if dir == system || strings.HasPrefix(dir, system+"/") {
			return ""
		}
	}
	if holdsHome(dir) || dir == "/opt" || dir == filepath.Dir(path) && isExecutable(path) {
		return path // a program by itself needs nothing beside it; what does can be made visible
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

// interpreterOf is the program that the first line of a script names, without a path if it is to be
// looked for.
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
