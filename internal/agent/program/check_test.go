package program_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/agent/acpagent"
	"github.com/evalrun/evalrun/internal/agent/function"
	"github.com/evalrun/evalrun/internal/agent/oracle"
	"github.com/evalrun/evalrun/internal/agent/program"
	_ "github.com/evalrun/evalrun/internal/agent/types"
)

// A25: a program that is missing is found before it is started, and how to get it is told.
func TestAProgramIsLookedForBeforeTheStart(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "tool"), []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", "/none")
	qwen, _ := agent.Registered("qwen")
	for name, c := range map[string]struct {
		entry  agent.Entry
		passed map[string]string
		want   string
	}{
		"of the registry":             {entry: qwen, want: `command not found: there is no program "qwen" in PATH (folders: 1); it comes with: npm install -g @qwen-code/qwen-code@0.24.4 (the version that was tested; it needs Node.js 22 or newer)`},
		"a path":                      {entry: agent.Entry{Type: acpagent.Name, Command: []string{"./tool"}}},
		"in a folder":                 {entry: agent.Entry{Type: acpagent.Name, Command: []string{"./tool"}, Cwd: "sub"}, want: `command not found: "./tool": looked for ` + dir + `/sub/tool, which does not exist`},
		"by its own PATH":             {entry: agent.Entry{Type: acpagent.Name, Command: []string{"tool"}, Env: map[string]string{"PATH": "${HERE}"}}},
		"by a PATH that is passed":    {entry: agent.Entry{Type: function.Name, Command: []string{"tool"}}, passed: map[string]string{"PATH": dir}},
		"by a PATH of the rollout":    {entry: agent.Entry{Type: acpagent.Name, Command: []string{"tool"}, Env: map[string]string{"PATH": "{home}/bin"}}},
		"by a PATH that is not known": {entry: agent.Entry{Type: acpagent.Name, Command: []string{"tool"}, Env: map[string]string{"PATH": "${NOT_SET}"}}},
		"no program":                  {entry: agent.Entry{Type: oracle.NopName}},
	} {
		got := ""
		if f := program.Check(c.entry, dir, c.passed, agent.Options{Resolve: func(name string) (string, bool) { return dir, name == "HERE" }}); f != nil {
			got = f.Message
		}
		if got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}
