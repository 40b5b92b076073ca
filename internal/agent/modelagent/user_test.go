package modelagent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/model"
)

// twoModels is a provider with an assistant, who says back what it hears, and a person, who says one
// thing after another. It keeps the requests of each.
type twoModels struct {
	*httptest.Server
	person []string
	// answered counts the answers of the assistant before the server was there.
	answered int

	mu       sync.Mutex
	requests map[string][]string
}

func newTwoModels(t *testing.T, person ...string) *twoModels {
	t.Helper()
	m := &twoModels{person: person, requests: map[string][]string{}}
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var in struct {
			Model    string `json:"model"`
			Messages []struct {
				Content json.RawMessage `json:"content"`
			} `json:"messages"`
			Input []struct {
				Content string `json:"content"`
			} `json:"input"`
		}
		_ = json.Unmarshal(body, &in)
		name := in.Model
		if strings.Contains(r.URL.Path, "person") {
			name = "person"
		}
		m.mu.Lock()
		n := len(m.requests[name])
		m.requests[name] = append(m.requests[name], string(body))
		m.mu.Unlock()
		text := fmt.Sprintf("answer %d", m.answered+n+1)
		if name == "person" {
			text = m.person[min(n, len(m.person)-1)]
		}
		quoted, _ := json.Marshal(text)
		switch {
		case strings.Contains(r.URL.Path, "/chat/"):
			_, _ = fmt.Fprintf(w, `{"choices":[{"message":{"role":"assistant","content":%s},"finish_reason":"stop"}],"usage":{"prompt_tokens":10,"completion_tokens":2}}`, quoted)
		case strings.Contains(r.URL.Path, "/responses"):
			_, _ = fmt.Fprintf(w, `{"status":"completed","output":[{"type":"message","role":"assistant","content":[{"type":"output_text","text":%s}]}],"usage":{"input_tokens":10,"output_tokens":2}}`, quoted)
		case strings.Contains(r.URL.Path, "/messages"):
			_, _ = fmt.Fprintf(w, `{"content":[{"type":"text","text":%s}],"stop_reason":"end_turn","usage":{"input_tokens":10,"output_tokens":2}}`, quoted)
		default:
			_, _ = fmt.Fprintf(w, `{"candidates":[{"content":{"role":"model","parts":[{"text":%s}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":10,"candidatesTokenCount":2}}`, quoted)
		}
	}))
	t.Cleanup(m.Close)
	return m
}

// userOf is the key "user" with the person of the provider.
func (m *twoModels) userOf(api model.API, more string) string {
	return `, "tools": [], "user": {` + strings.Replace(modelOf(api, m.URL), `"m1"`, `"person"`, 1) + `, "goal": "a refund"` + more + `}`
}

const (
	personAsks  = `{"message":"I want my money back.","done":false,"reached":false}`
	personGoes  = `{"message":"Thank you, goodbye.","done":true,"reached":true}`
	personGives = `{"message":"","done":true,"reached":false}`
)

// TestAUserIsPlayed has each rule end a conversation, with each API.
func TestAUserIsPlayed(t *testing.T) {
	for _, api := range allAPIs {
		for _, one := range []struct {
			more, prompt string
			person       []string
			want         string
		}{
			{"", "", []string{personAsks, personGoes},
				`{"content":"answer 1","messages":[{"role":"user","content":"I want my money back."},{"role":"assistant","content":"answer 1"},{"role":"user","content":"Thank you, goodbye."}],"endedBy":"reached"}`},
			{"", "Hello", []string{personGives},
				`{"content":"answer 1","messages":[{"role":"user","content":"Hello"},{"role":"assistant","content":"answer 1"}],"endedBy":"given-up"}`},
			{`, "until": "MONEY"`, "Hello", []string{personAsks},
				`{"content":"answer 1","messages":[{"role":"user","content":"Hello"},{"role":"assistant","content":"answer 1"},{"role":"user","content":"I want my money back."}],"endedBy":"phrase"}`},
			{`, "messages": 2`, "", []string{personAsks},
				`{"content":"answer 2","messages":[{"role":"user","content":"I want my money back."},{"role":"assistant","content":"answer 1"},{"role":"user","content":"I want my money back."},{"role":"assistant","content":"answer 2"}],"endedBy":"messages"}`},
		} {
			m := newTwoModels(t, one.person...)
			more := m.userOf(api, one.more)
			if one.prompt != "" {
				more += `, "prompt": "` + one.prompt + `"`
			}
			b := newBench(t)
			out := b.run(t.Context(), api, m.URL, more, "")
			if out.Fault != nil {
				t.Fatalf("%s: %v", api, out.Fault)
			}
			if diff := cmp.Diff(one.want, string(out.Output)); diff != "" {
				t.Errorf("%s: %s", api, diff)
			}
			if u := out.Info.User; u == nil || u.Ended == "" || u.Messages != len(m.requests["person"]) && api != model.APIGemini ||
				u.Usage[0].OutputTokens != int64(2*u.Messages) || u.Usage[0].Model != "person" {
				t.Errorf("%s: %+v", api, u)
			}
			for _, used := range out.Info.Usage {
				if used.Model != "m1" {
					t.Errorf("%s: the agent has paid for its user: %+v", api, out.Info.Usage)
				}
			}
			if first := m.requests["person"]; len(first) > 0 && !strings.Contains(first[0], "a refund") {
				t.Errorf("%s: the person does not know what they want: %s", api, first[0])
			}
			for _, request := range m.requests["m1"] {
				if strings.Contains(request, "a refund") {
					t.Errorf("%s: the agent knows what the person wants: %s", api, request)
				}
			}
		}
	}
}

// TestAUserIsAskedOnce breaks a conversation off after each line of its journal: whoever goes on asks
// nobody again, and sends what was sent before.
func TestAUserIsAskedOnce(t *testing.T) {
	whole := newTwoModels(t, personAsks, personAsks, personGoes)
	b := newBench(t)
	more := whole.userOf(model.APIChat, "")
	want := b.run(t.Context(), model.APIChat, whole.URL, more, "")
	journal, err := os.ReadFile(filepath.Join(b.seg.Dir, FileJournal))
	if err != nil || want.Fault != nil {
		t.Fatal(err, want.Fault)
	}
	lines := strings.SplitAfter(string(journal), "\n")
	lines = lines[:len(lines)-1]
	if len(lines) != 6 { // begin, three messages of the person, two answers
		t.Fatalf("%d lines: %s", len(lines), journal)
	}
	for n := 1; n <= len(lines); n++ {
		rest := newTwoModels(t, append([]string{personAsks, personAsks, personGoes}[n/2:], "nothing more")...)
		rest.answered = (n - 1) / 2
		c := newBench(t)
		c.attempt = 1
		first := filepath.Join(c.dir, "1.1")
		torn := strings.Join(lines[:n], "") + `{"step":"us`
		if err := errors.Join(os.Mkdir(first, 0o700),
			os.WriteFile(filepath.Join(first, FileJournal), []byte(torn), 0o600)); err != nil {
			t.Fatal(err)
		}
		got := c.run(t.Context(), model.APIChat, rest.URL, rest.userOf(model.APIChat, ""), "")
		asked := len(rest.requests["person"]) + len(rest.requests["m1"])
		if got.Fault != nil || asked != len(lines)-n {
			t.Errorf("after line %d: %d asked, want %d; %v", n, asked, len(lines)-n, got.Fault)
			continue
		}
		if u := got.Info.User; u.Messages != 3 || u.Usage[0].OutputTokens != 6 {
			t.Errorf("after line %d: %+v", n, u)
		}
		for _, who := range []string{"person", "m1"} {
			all := whole.requests[who]
			for i, request := range rest.requests[who] {
				if before := all[len(all)-len(rest.requests[who])+i]; who == "person" && request != before {
					t.Errorf("after line %d: the request of %s is not what it was:\n%s\n%s", n, who, request, before)
				}
			}
		}
	}
}

// TestAUserIsCountedOnce has attempts fail, each of which tells what its user has said: what is read again does not
// count again.
func TestAUserIsCountedOnce(t *testing.T) {
	m := newTwoModels(t, personAsks, "no JSON", personAsks, "no JSON", personGoes)
	b := newBench(t)
	messages, tokens := 0, int64(0)
	for attempt := 1; attempt <= 3; attempt++ {
		out := b.run(t.Context(), model.APIChat, m.URL, m.userOf(model.APIChat, ""), "")
		if (out.Fault == nil) != (attempt == 3) {
			t.Fatalf("attempt %d: %v", attempt, out.Fault)
		}
		messages += out.Info.User.Messages
		for _, used := range out.Info.User.Usage {
			tokens += used.OutputTokens
		}
		if attempt == 3 && out.Info.User.Ended != "reached" {
			t.Errorf("%+v", out.Info.User)
		}
	}
	if messages != 3 || tokens != 6 {
		t.Errorf("%d messages and %d tokens are counted, want 3 and 6", messages, tokens)
	}
}

// TestAUserWhoDoesNotAnswerAsAsked has the model of the user fail in every way.
func TestAUserWhoDoesNotAnswerAsAsked(t *testing.T) {
	for _, text := range []string{"Hello!", `{"message":"","done":false}`, `{"message":7}`, ""} {
		m := newTwoModels(t, text)
		out := newBench(t).run(t.Context(), model.APIChat, m.URL, m.userOf(model.APIChat, ""), "")
		if out.Fault == nil || out.Fault.Category != fault.Model || !strings.Contains(out.Fault.Message, "the user who is played has not answered as asked") {
			t.Errorf("%q: %v", text, out.Fault)
		}
	}
	m := newTwoModels(t, personAsks)
	both := entryOf(t, `{`+modelOf(model.APIChat, m.URL)+m.userOf(model.APIChat, "")+`}`)
	if err := InBatches(&both); err == nil || !strings.Contains(err.Error(), "waits for no batch") {
		t.Error("a user and batches:", err)
	}
	user := strings.Replace(m.userOf(model.APIChat, `, "persona": "{{who}}"`), `"goal": "a refund"`, `"goal": "{{what}}"`, 1)
	e := entryOf(t, `{`+modelOf(model.APIChat, m.URL)+user+`}`)
	if missing := e.Settings.(*Settings); lacks(e, json.RawMessage(`{"who":"x"}`)) != "what" || missing.User.messages() != 10 {
		t.Error(lacks(e, json.RawMessage(`{"who":"x"}`)))
	}
}
