package notify

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/store"
)

const testSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" // published with the standard's test vector

func parse(t *testing.T, text string) (Targets, []string) {
	t.Helper()
	n, err := input.ParseJSON("s.json", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	r := &input.Reader{}
	targets := ParseTargets(r, n)
	var said []string
	for _, p := range r.Problems {
		said = append(said, p.Error())
	}
	return targets, said
}

func TestParseTargets(t *testing.T) {
	targets, said := parse(t, `[{"url":"https://h.example/hook/${TOKEN}","secret":"${SECRET}","events":["finished"],"timeout":"3s"},{"command":["notify-send","evalrun"]}]`)
	if said != nil || len(targets) != 2 {
		t.Fatalf("got %+v, %q", targets, said)
	}
	if got := targets.Variables(); !slices.Equal(got, []string{"SECRET", "TOKEN"}) {
		t.Errorf("variables %q", got)
	}
	if got := targets[0].Name() + " " + targets[1].Name(); got != "https://h.example notify-send evalrun" {
		t.Errorf("names %s", got)
	}
	if got := targets[0].ForStore().Types; !slices.Equal(got, []store.EventType{store.RunFinished}) {
		t.Errorf("events %q", got)
	}
	if got := targets[1].ForStore().Types; !slices.Equal(got, store.NotifiedEvents) {
		t.Errorf("events %q", got)
	}
	// A target is the same after it was stored with its run.
	text, err := json.Marshal(targets)
	if err != nil {
		t.Fatal(err)
	}
	var again Targets
	if err := json.Unmarshal(text, &again); err != nil || again[0].ID() != targets[0].ID() || again[1].ID() != targets[1].ID() || again[0].ID() == again[1].ID() {
		t.Errorf("%s, %v", text, err)
	}
}

func TestNamesAreNoCredentials(t *testing.T) {
	for url, want := range map[string]string{
		"https://hooks.example.com/services/T0/B0/open-sesame": "https://hooks.example.com",
		"https://me:open-sesame@h.example:8443/x":              "https://h.example:8443",
		"https://h.example?key=open-sesame":                    "https://h.example",
		"${HOOK_URL}":                                          "${HOOK_URL}",
	} {
		if got := (Target{URL: url}).Name(); got != want {
			t.Errorf("%s is called %s", url, got)
		}
	}
}

func TestWrongTargets(t *testing.T) {
	for text, want := range map[string]string{
		`{}`:                            "s.json:1:1: expected a list of webhooks and commands, got an object",
		`["x"]`:                         "s.json:1:2: [0]: expected an object, got a string",
		`[{}]`:                          "s.json:1:2: [0]: expected a url with a secret, or a command",
		`[{"url":"https://h/"}]`:        "s.json:1:2: [0].secret: missing; expected a string",
		`[{"url":"h","secret":"${S}"}]`: "s.json:1:9: [0].url: expected a URL that begins with http:// or https:// and a host",
		`[{"url":"https://h/{itemKey}","secret":"${S}"}]`:        "s.json:1:9: [0].url: expected no placeholder, got {itemKey}",
		`[{"url":"https://h/","secret":"hello"}]`:                "s.json:1:31: [0].secret: expected a secret of Standard Webhooks: whsec_ and then 24 to 64 random bytes in base64",
		`[{"url":"https://h/","secret":"whsec_aGVsbG8="}]`:       "s.json:1:31: [0].secret: expected a secret of Standard Webhooks: whsec_ and then 24 to 64 random bytes in base64",
		`[{"url":"https://h/","secret":"` + testSecret + `"}]`:   "s.json:1:31: warning: [0].secret: what stands here is stored with every run; write it as a variable such as ${WEBHOOK_SECRET}",
		`[{"url":"https://h/","secret":"${S"}]`:                  "s.json:1:31: [0].secret: a ${ is not closed by a }",
		`[{"url":"https://h/","secret":"${S}","command":["x"]}]`: "s.json:1:2: [0]: expected either a url or a command, got both",
		`[{"command":[]}]`:                          "s.json:1:13: [0].command: expected the program and its arguments, got none",
		`[{"command":"ls"}]`:                        "s.json:1:13: [0].command: expected an array, got a string",
		`[{"command":["ls"],"secret":"${S}"}]`:      "s.json:1:20: warning: [0].secret: unknown key",
		`[{"command":["ls"],"events":[]}]`:          "s.json:1:29: [0].events: expected at least one of suspended, question, finished, rescored, got none",
		`[{"command":["ls"],"events":["done"]}]`:    `s.json:1:30: [0].events[0]: expected one of suspended, question, finished, rescored, got "done"`,
		`[{"command":["ls"],"timeout":"2m"}]`:       "s.json:1:30: [0].timeout: expected a duration above 0 and up to 1m0s",
		`[{"command":["ls"]},{"command":["ls"]}]`:   "s.json:1:21: [1]: the same target is there twice",
		`[{"command":["ls"],"event":["finished"]}]`: "s.json:1:20: warning: [0].event: unknown key",
	} {
		_, said := parse(t, text)
		if len(said) != 1 || !strings.Contains(said[0], want) {
			t.Errorf("%s:\n got %q\nwant %q", text, said, want)
		}
	}
}
