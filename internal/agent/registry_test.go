package agent_test

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/agent/acpagent"
	"github.com/evalrun/evalrun/internal/agent/oracle"
	_ "github.com/evalrun/evalrun/internal/agent/types"
	"github.com/evalrun/evalrun/internal/wait"
)

// with puts variables over those of an entry.
func with(env, own map[string]string) map[string]string {
	env = maps.Clone(env)
	maps.Copy(env, own)
	return env
}

// stored is an entry as it comes back from a store: as JSON that is decoded, and as JSON that is
// read as an eval set is.
func stored(t *testing.T, e agent.Entry) (decoded, read agent.Entry) {
	t.Helper()
	text, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &decoded); err != nil {
		t.Fatal(err)
	}
	read, problems := parse(t, string(text))
	if len(problems) > 0 {
		t.Fatalf("%s: %v", text, problems)
	}
	return decoded, read
}

func TestTheRegistryIsStoredAndReadBack(t *testing.T) {
	for _, name := range agent.Names() {
		e, problems := parse(t, `"`+name+`"`)
		if len(problems) > 0 || e.Name != name {
			t.Errorf("%s: got %+v, %v", name, e, problems)
		}
		decoded, read := stored(t, e)
		if diff := cmp.Diff(e, decoded) + cmp.Diff(e, read); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if err := e.Check(); err != nil {
			t.Error(err)
		}
		if required := e.Required(); len(required) > 0 {
			t.Errorf("%s cannot run without %v", name, required)
		}
	}
}

func TestWhoeverChangesAnEntryChangesNoOther(t *testing.T) {
	first, _ := agent.Registered("claude")
	first.Env["ANTHROPIC_MODEL"], first.Model.URL, acpagent.SettingsOf(first).ResumeBy[0] = "x", "x", "x"
	if second, _ := agent.Registered("claude"); second.Env["ANTHROPIC_MODEL"] == "x" || second.Model.URL == "x" || acpagent.SettingsOf(second).ResumeBy[0] == "x" {
		t.Errorf("got %+v", second)
	}
}

func TestAnEntryThatExtendsOne(t *testing.T) {
	e, problems := parse(t, `{"type":"acp","extends":"claude","name":"mine","env":{"ANTHROPIC_MODEL":"big","OWN":"1"},"files":{".claude/settings.json":"{}"},
		"model":{"url":"http://localhost:1","name":"m"},"permissions":"suspend","elicitation":"suspend","resumeBy":["load"],"mode":"plan","configOptions":{"a":"b"},
		"authMethod":"key","fs":true,"terminal":true,"idleTimeout":"90s","handshakeTimeout":"3m","visible":["/srv/tools"],"cwd":"bin","resumeWhen":"any","timeout":"1h"}`)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	base, _ := agent.Registered("claude")
	want := base
	acp := *acpagent.SettingsOf(base)
	want.Settings = &acp
	want.Name, want.Cwd, want.ResumeWhen, want.Timeout = "mine", "bin", agent.ResumeAny, wait.Duration(time.Hour)
	want.Env = with(base.Env, map[string]string{"ANTHROPIC_MODEL": "big", "OWN": "1"})
	want.Extends, acp.Files = "claude", map[string]string{".claude/settings.json": "{}"}
	want.Model = &agent.Model{API: "anthropic", URL: "http://localhost:1", Name: "m"}
	acp.Permissions, acp.Elicitation, acp.ResumeBy, acp.Mode = acpagent.PolicySuspend, acpagent.PolicySuspend, []acpagent.ResumeBy{acpagent.ByLoad}, "plan"
	acp.ConfigOptions, acp.AuthMethod, acp.FS, acp.Terminal = map[string]string{"a": "b"}, "key", true, true
	acp.HandshakeTimeout = wait.Duration(3 * time.Minute) // T28
	acp.IdleTimeout, acp.Visible = wait.Duration(90*time.Second), []string{"/srv/tools"}
	if diff := cmp.Diff(want, e); diff != "" {
		t.Error(diff)
	}
	decoded, read := stored(t, e)
	if diff := cmp.Diff(e, decoded) + cmp.Diff(e, read); diff != "" {
		t.Error(diff)
	}
}

func TestAnEntryOfAnyACPAgent(t *testing.T) {
	e, problems := parse(t, `{"type":"acp","command":["bin/agent","--acp"],"resumeBy":[]}`)
	want := agent.Entry{Name: "agent", Type: acpagent.Name, Command: []string{"bin/agent", "--acp"}, ResumeWhen: agent.ResumeAll, AcceptsFaults: true,
		Settings: &acpagent.Settings{Permissions: acpagent.PolicyAllow, Elicitation: acpagent.PolicyDeny, ResumeBy: []acpagent.ResumeBy{acpagent.ByReplay}}}
	if diff := cmp.Diff(want, e); diff != "" || len(problems) > 0 {
		t.Errorf("%s%v", diff, problems)
	}
	decoded, read := stored(t, e)
	if diff := cmp.Diff(e, decoded) + cmp.Diff(e, read); diff != "" {
		t.Error(diff)
	}
	e, _ = parse(t, `{"type":"acp","command":["a"],"acceptsFaults":false}`)
	if decoded, _ = stored(t, e); e.AcceptsFaults || decoded.AcceptsFaults {
		t.Errorf("got %+v, stored %+v", e, decoded)
	}
	extended, problems := parse(t, `{"type":"acp","extends":"gemini","command":["my-gemini"]}`)
	if len(problems) > 0 || extended.Name != "gemini" || !slices.Equal(extended.Command, []string{"my-gemini"}) || !slices.Equal(acpagent.SettingsOf(extended).ResumeBy, []acpagent.ResumeBy{acpagent.ByReplay}) {
		t.Errorf("got %+v, %v", extended, problems)
	}
}

// An agent of the registry without a key for its model has nowhere to get one from, unless its
// entry says something of its own.
func TestAMissingKey(t *testing.T) {
	none := func(string) (string, bool) { return "", false }
	some := func(name string) (string, bool) { return "x", name == "OPENAI_API_KEY" }
	codex, _ := agent.Registered("codex")
	own := codex
	own.Env = with(own.Env, map[string]string{"CODEX_ACCESS_TOKEN": "${MINE}"})
	for name, c := range map[string]struct {
		entry   agent.Entry
		resolve func(string) (string, bool)
		want    []string
	}{
		"none":              {codex, none, []string{"OPENAI_API_KEY"}},
		"one":               {codex, some, nil},
		"its own":           {own, none, nil},
		"no model at all":   {agent.Entry{Type: oracle.NopName}, none, nil},
		"a model of no key": {agent.Entry{Type: acpagent.Name, Model: &agent.Model{URL: "http://x"}, Settings: &acpagent.Settings{}}, none, nil},
	} {
		if got := c.entry.MissingKey(c.resolve); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

// A25, A27: how the program of an agent of the registry is installed is known, but for one that
// nobody has tested.
func TestHowTheRegistrysAgentsAreInstalled(t *testing.T) {
	for _, name := range agent.Names() {
		e, _ := agent.Registered(name)
		if e.Type != acpagent.Name || name == "goose" {
			continue
		}
		if how := agent.HowToInstall(e.Command[0]); !strings.Contains(how, "the version that was tested; it needs ") {
			t.Errorf("%s: %q", name, how)
		}
	}
}

func TestTheSchemaKnowsTheRegistry(t *testing.T) {
	data, err := os.ReadFile("../../schemas/agent.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var schema struct {
		AnyOf []struct{ Enum []string }
	}
	if err := json.Unmarshal(data, &schema); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(agent.Names(), schema.AnyOf[0].Enum); diff != "" {
		t.Error(diff)
	}
}
