package agent

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/internal/wait"
)

// stored is an entry as it comes back from a store: as JSON that is decoded, and as JSON that is
// read as an eval set is.
func stored(t *testing.T, e Entry) (decoded, read Entry) {
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
	for _, name := range Names() {
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
	first, _ := Registered("claude")
	first.Env["ANTHROPIC_MODEL"], first.Model.URL, first.ResumeBy[0] = "x", "x", "x"
	if second, _ := Registered("claude"); second.Env["ANTHROPIC_MODEL"] == "x" || second.Model.URL == "x" || second.ResumeBy[0] == "x" {
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
	base, _ := Registered("claude")
	want := base
	acp := *base.ACP
	want.ACP = &acp
	want.Name, want.Cwd, want.ResumeWhen, want.Timeout = "mine", "bin", ResumeAny, wait.Duration(time.Hour)
	want.Env = merge(base.Env, map[string]string{"ANTHROPIC_MODEL": "big", "OWN": "1"})
	acp.Extends, acp.Files = "claude", map[string]string{".claude/settings.json": "{}"}
	acp.Model = &Model{API: "anthropic", URL: "http://localhost:1", Name: "m"}
	acp.Permissions, acp.Elicitation, acp.ResumeBy, acp.Mode = PolicySuspend, PolicySuspend, []ResumeBy{ByLoad}, "plan"
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
	want := Entry{Name: "agent", Type: TypeACP, Command: []string{"bin/agent", "--acp"}, ResumeWhen: ResumeAll, AcceptsFaults: true,
		ACP: &ACP{Permissions: PolicyAllow, Elicitation: PolicyDeny, ResumeBy: []ResumeBy{ByReplay}}}
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
	if len(problems) > 0 || extended.Name != "gemini" || !slices.Equal(extended.Command, []string{"my-gemini"}) || !slices.Equal(extended.ResumeBy, []ResumeBy{ByReplay}) {
		t.Errorf("got %+v, %v", extended, problems)
	}
}

// An agent of the registry without a key for its model has nowhere to get one from, unless its
// entry says something of its own.
func TestAMissingKey(t *testing.T) {
	none := func(string) (string, bool) { return "", false }
	some := func(name string) (string, bool) { return "x", name == "OPENAI_API_KEY" }
	codex, _ := Registered("codex")
	own := codex
	own.Env = merge(own.Env, map[string]string{"CODEX_ACCESS_TOKEN": "${MINE}"})
	for name, c := range map[string]struct {
		entry   Entry
		resolve func(string) (string, bool)
		want    []string
	}{
		"none":              {codex, none, []string{"OPENAI_API_KEY"}},
		"one":               {codex, some, nil},
		"its own":           {own, none, nil},
		"no model at all":   {Entry{Type: TypeNop}, none, nil},
		"a model of no key": {Entry{Type: TypeACP, ACP: &ACP{Model: &Model{URL: "http://x"}}}, none, nil},
	} {
		if got := c.entry.MissingKey(c.resolve); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

// A25, A27: how the program of an agent of the registry is installed is known, but for one that
// nobody has tested.
func TestHowTheRegistrysAgentsAreInstalled(t *testing.T) {
	for _, name := range Names() {
		e, _ := Registered(name)
		if e.ACP == nil || name == "goose" {
			continue
		}
		if how := HowToInstall(e.Command[0]); !strings.Contains(how, "the version that was tested; it needs ") {
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
	if diff := cmp.Diff(Names(), schema.AnyOf[0].Enum); diff != "" {
		t.Error(diff)
	}
}
