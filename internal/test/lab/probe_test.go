package lab

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/testenv"
)

// probed is what evalrun probe finds out of an agent of the lab, by check and fact.
func probed(t *testing.T, name, isolation string, args ...string) map[string]string {
	t.Helper()
	report := probeReport(t, name, isolation, args...)
	found := map[string]string{}
	for _, c := range report.Checks {
		found[c.Name] = c.Verdict
		for _, f := range c.Facts {
			found[c.Name+": "+f.Name] = f.Verdict
		}
	}
	return found
}

// TestProbe has the agents do what was measured of them before, with other servers and another
// model.
func TestProbe(t *testing.T) {
	again := map[string]string{
		"resume": "yes", "resume: history replayed": "no", "resume: history complete": "yes", "resume: new server used": "yes", "resume: old server left alone": "yes",
		"load": "yes", "load: history replayed": "before the answer", "load: history complete": "yes", "load: new server used": "yes", "load: old server left alone": "yes",
	}
	for name, own := range map[string]map[string]string{
		"opencode": {"slow-server": "session/new waits", "http: permission asked": "no", "cancel-tool: server told": "yes", "exit": "yes"},
		"claude":   {"slow-server": "first request waits", "http: permission asked": "yes", "cancel-tool: server told": "yes", "exit": "yes"},
		"gemini":   {"slow-server": "session/new waits", "http: permission asked": "yes", "cancel-tool: server told": "no", "exit": "no", "resume": "no"},
	} {
		t.Run(name, func(t *testing.T) {
			found := probed(t, name, "bwrap")
			want := map[string]string{
				"initialize": "yes", "slow-server: tools in the first request": "yes", "dead-server: session opened": "yes", "dead-server: prompt returns": "end_turn",
				"cancel-tool": "yes", "cancel-tool: tool call closed": "yes", "cancel-model": "yes", "cancel-model: model request aborted": "yes", "exit: on SIGTERM": "yes",
			}
			for _, transport := range []string{"stdio", "http", "sse"} {
				for _, fact := range []string{"", ": tool seen by the model", ": call arrived", ": result shown to the model"} {
					want[transport+fact] = "yes"
				}
			}
			want["http: token sent"], want["sse: token sent"] = "yes", "yes"
			if name != "gemini" { // which loses a session that is loaded within the minute of its start, and keeps it in the next
				for fact, verdict := range again {
					want[fact] = verdict
				}
			}
			for fact, verdict := range own {
				want[fact] = verdict
			}
			for fact, verdict := range want {
				if found[fact] != verdict {
					t.Errorf("%s: %q, want %q", fact, found[fact], verdict)
				}
			}
		})
	}
}

// TestOrphans finds the shell that an agent leaves behind, which bwrap would have ended.
func TestOrphans(t *testing.T) {
	for name, want := range map[string]string{"opencode": "orphans", "claude": "orphans", "gemini": "none", "codex": "orphans"} {
		t.Run(name, func(t *testing.T) {
			if got := probed(t, name, "process", "--only", "orphans")["orphans"]; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

func TestProbeIsToldWhatToDo(t *testing.T) {
	testenv.NeedSlow(t)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"function.json": `{"type": "function", "command": ["true"]}`,
		"dies.json":     `{"type": "acp", "name": "dies", "command": ["/bin/sh", "-c", "echo no licence: $LICENCE_TOKEN >&2"], "env": {"LICENCE_TOKEN": "${LAB_MODEL_KEY}"}}`,
		"wrong.json":    `{"type": "acp", "name": 7}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		code int
		want string
		args []string
	}{
		{2, `no check "htpp"; did you mean "http"?`, []string{"--only", "htpp", "opencode"}},
		{2, "(claude, codex, copilot, gemini, goose, kimi, opencode, qwen, vibe, zed-claude, zed-codex), or a file with an agent entry; nobody: cannot be read", []string{"nobody"}},
		{2, `agents of type "function" do not speak the Agent Client Protocol`, []string{"function.json"}},
		{2, "wrong.json:1:", []string{"wrong.json"}},
		{2, "--timeout: expected a duration above 0", []string{"--timeout", "0s", "opencode"}},
		{2, "--isolation: ", []string{"--isolation", "docker", "opencode"}},
		{2, "probe: expected AGENT, got none", nil},
		{3, "the agent cannot be probed: ", []string{"--isolation", "process", "dies.json"}},
		{3, "no licence", []string{"--isolation", "process", "dies.json"}},
	} {
		out := evalrun(t, dir, c.code, append([]string{"probe"}, c.args...)...)
		if !strings.Contains(out, c.want) || strings.Contains(out, modelKey) {
			t.Errorf("%v: got %s", c.args, out)
		}
	}
}
