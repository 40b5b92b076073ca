package acpagent

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/evalrun/evalrun/internal/testenv"
)

// file makes an executable file.
func file(t *testing.T, content string, elem ...string) string {
	t.Helper()
	path := filepath.Join(elem...)
	testenv.Mkdir(t, filepath.Dir(path))
	if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func link(t *testing.T, to string, elem ...string) string {
	t.Helper()
	path := filepath.Join(elem...)
	testenv.Mkdir(t, filepath.Dir(path))
	if err := os.Symlink(to, path); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestVisible(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	home := testenv.Mkdir(t, root, "home", "me")
	t.Setenv("HOME", home)
	node := file(t, "", root, "node22", "bin", "node")
	env := []string{"PATH=" + filepath.Dir(node)}

	const script = "#!/usr/bin/env -S node --no-warnings\n"
	file(t, script, root, "npm", "lib", "node_modules", "@vendor", "agent", "cli.js")
	file(t, script, home, "node_modules", "agent", "cli.js")
	mine := file(t, "", home, "bin", "mine")
	bare := file(t, "", home, "bare")
	target := file(t, "", root, "versions", "2.0", "agent")
	link(t, target, root, "current", "agent")
	chain := link(t, filepath.Join(root, "current", "agent"), home, ".local", "bin", "agent")
	argument := file(t, "", root, "scripts", "agent.py")

	shell := file(t, "#!/bin/sh\n", root, "project", "agent.sh")
	single := file(t, "\x7fELF and so on", root, "project", "agent")

	for name, tt := range map[string]struct {
		program string
		args    []string
		want    []string
	}{
		"a package of npm and its link": {link(t, "../lib/node_modules/@vendor/agent/cli.js", root, "npm", "bin", "agent"), nil,
			[]string{filepath.Join(root, "npm"), filepath.Join(root, "npm", "lib"), filepath.Join(root, "node22")}},
		"a package of npm in the home": {link(t, "../agent/cli.js", home, "node_modules", ".bin", "agent"), nil,
			[]string{filepath.Join(home, "node_modules"), filepath.Join(root, "node22")}},
		"a program in a folder bin":    {node, nil, []string{filepath.Join(root, "node22")}},
		"a program in ~/bin":           {mine, nil, []string{filepath.Join(home, "bin")}},
		"a program in the home":        {bare, nil, []string{bare}},
		"a link to a link":             {chain, nil, []string{filepath.Join(home, ".local"), filepath.Join(root, "current"), filepath.Join(root, "versions", "2.0")}},
		"a program of the system":      {"/usr/bin/env", nil, nil},
		"a shell script":               {shell, nil, []string{filepath.Dir(shell)}},
		"a program by itself":          {single, nil, []string{single}},
		"a script among the arguments": {"/usr/bin/env", []string{argument, "--flag", "relative.py", filepath.Join(root, "missing"), root}, []string{filepath.Join(root, "scripts")}},
	} {
		if got := visible(tt.program, tt.args, env); !slices.Equal(got, tt.want) {
			t.Errorf("%s: got  %v\nwant %v", name, got, tt.want)
		}
	}
}

// Whatever is asked for, the home is not shown, nor what holds it.
func TestTheHomeIsNeverVisible(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	home := testenv.Mkdir(t, root, "home", "me")
	t.Setenv("HOME", home+"/")
	for _, program := range []string{
		file(t, "", home, "agent"), file(t, "", home, "bin", "agent"), file(t, "", root, "home", "agent"), file(t, "", root, "home", "bin", "agent"),
		file(t, "", root, "home", "node_modules", "agent", "cli.js"), file(t, "", home, "node_modules", "agent", "cli.js"), link(t, "agent", home, "link"),
		link(t, "../../agent/cli.js", home, "node_modules", "agent", "bin", "x"),
	} {
		got := visible(program, nil, nil)
		if len(got) == 0 {
			t.Errorf("nothing is visible of %s", program)
		}
		for _, dir := range got {
			if holdsHome(dir) {
				t.Errorf("%s shows %s", program, dir)
			}
		}
	}
}

func TestInterpreters(t *testing.T) {
	dir := t.TempDir()
	for line, want := range map[string]string{
		"#!/bin/sh\n": "/bin/sh", "#! /usr/bin/python3 -u\n": "/usr/bin/python3", "#!/usr/bin/env node\n": "node", "#!/usr/bin/env -S A=1 node --x\n": "node",
		"#!\n": "", "#!/usr/bin/env\n": "/usr/bin/env", "\x7fELF": "", "": "", "#!/bin/sh": "",
	} {
		if got := interpreterOf(file(t, line, dir, "program")); got != want {
			t.Errorf("%q: got %q", line, got)
		}
	}
	if got := interpreterOf(filepath.Join(dir, "missing")); got != "" {
		t.Errorf("got %q", got)
	}
}
