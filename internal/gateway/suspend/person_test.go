package suspend

import (
	"context"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/wait"
)

// asking is a server of 2026-07-28 without tasks, whose tools ask before they do anything. What
// they were called with is kept.
type asking struct {
	mu    sync.Mutex
	calls []jsonobj.Object
}

func startAsking(t *testing.T) (*asking, gateway.Server) {
	t.Helper()
	s := &asking{}
	h := httptest.NewServer(mcp.NewHTTPHandler(s, mcp.ServerOptions{}))
	t.Cleanup(h.Close)
	return s, gateway.Server{Name: "s", Target: mcp.Target{URL: h.URL}}
}

const (
	askedName = `"who":{"method":"elicitation/create","params":{"mode":"form","message":"Who are you?","requestedSchema":{"type":"object"}}}`
	askedRoot = `"where":{"method":"roots/list","params":{}}`
)

func (s *asking) Serve(_ context.Context, r *mcp.Request) (json.RawMessage, error) {
	params, err := jsonobj.ParseObject(r.Params)
	if err != nil {
		return nil, err
	}
	switch r.Method {
	case mcp.MethodDiscover:
		return json.RawMessage(`{"resultType":"complete","ttlMs":0,"cacheScope":"private","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}`), nil
	case mcp.MethodToolsList:
		return json.RawMessage(`{"resultType":"complete","ttlMs":0,"cacheScope":"private","tools":[
			{"name":"greet","inputSchema":{"type":"object"}},{"name":"again","inputSchema":{"type":"object"},"annotations":{"idempotentHint":true}},{"name":"locate","inputSchema":{"type":"object"}}]}`), nil
	case mcp.MethodToolsCall:
		s.mu.Lock()
		defer s.mu.Unlock()
		s.calls = append(s.calls, params)
		given := params.Object("inputResponses")
		switch name := params.Text("name"); {
		case name == "locate" && given == nil:
			return json.RawMessage(`{"resultType":"input_required","requestState":"r","inputRequests":{` + askedRoot + `}}`), nil
		case given == nil:
			return json.RawMessage(`{"resultType":"input_required","requestState":{"n":9007199254740993},"inputRequests":{` + askedName + "," + askedRoot + `}}`), nil
		case given.Object("who").Object("content").Text("name") == "lost":
			return json.RawMessage(`{"resultType":"input_required","requestState":3,"inputRequests":{` + askedRoot + `}}`), nil
		case given.Object("who").Object("content").Text("name") == "nobody":
			return json.RawMessage(`{"resultType":"input_required","requestState":2,"inputRequests":{"really":{"method":"elicitation/create","params":{"message":"Really?"}}}}`), nil
		}
		return TextResult("answers "+string(given.JSON()), false), nil
	}
	return nil, mcp.Errorf(mcp.CodeMethodNotFound, "no method %s", r.Method)
}

func (*asking) Notified(*mcp.Session, string, json.RawMessage) {}
func (*asking) Closed(*mcp.Session)                            {}

func (s *asking) made() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.calls)
}

// saying is an answer to every question.
func saying(content string) Reply {
	return func(string, json.RawMessage) json.RawMessage {
		return json.RawMessage(`{"action":"accept","content":` + content + `}`)
	}
}

func TestCallsThatAskAPerson(t *testing.T) {
	person := func(c *Hooks) { c.Person = true }
	// ask calls a tool, and gives the work that is left then.
	ask := func(t *testing.T, a *agentOf, tool string) *wait.Work {
		t.Helper()
		if text := a.text(tool, `{"n":9007199254740993}`); !strings.Contains(text, "a person was asked") {
			t.Fatal(text)
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		w := a.suspended[len(a.suspended)-1]
		if string(w.Input.Requests) != "{"+askedName+","+askedRoot+"}" || len(w.Input.Questions()) != 1 {
			t.Fatalf("asked: %s", w.Input.Requests)
		}
		return &w
	}

	t.Run("the call is made again with the answer", func(t *testing.T) {
		s, server := startAsking(t)
		a := behind(t, server, &memory{}, person)
		w := ask(t, a, "greet")
		outcome, err := Answer(t.Context(), a.endpoint, w, *w.Input, saying(`{"name":"Ada"}`))
		if err != nil || outcome == nil {
			t.Fatal(outcome, err)
		}
		last := s.calls[len(s.calls)-1]
		if string(last.Get("arguments")) != `{"n":9007199254740993}` || string(last.Get("requestState")) != `{"n":9007199254740993}` {
			t.Errorf("made again as %s", last.JSON())
		}
		if want := `{"who":{"action":"accept","content":{"name":"Ada"}},"where":{"roots":[]}}`; string(last.Get("inputResponses")) != want {
			t.Errorf("answered %s, want %s", last.Get("inputResponses"), want)
		}
	})

	t.Run("a further question is waited for as well", func(t *testing.T) {
		_, server := startAsking(t)
		ledger := &memory{}
		a := behind(t, server, ledger, person)
		w := ask(t, a, "greet")
		outcome, err := Answer(t.Context(), a.endpoint, w, *w.Input, saying(`{"name":"nobody"}`))
		if err != nil || outcome != nil || w.Input == nil || !strings.Contains(string(w.Input.Requests), "Really?") || string(w.Input.State) != "2" {
			t.Fatal(outcome, err, w.Input)
		}
		recorded, _ := ledger.Work(t.Context(), w.CallID)
		if diff := cmp.Diff(w, recorded); diff != "" {
			t.Error("recorded:", diff)
		}
		if outcome, err = Answer(t.Context(), a.endpoint, w, *w.Input, saying(`{}`)); err != nil || !strings.Contains(string(outcome.Result), "really") {
			t.Error(outcome, err)
		}
	})

	t.Run("a further question that no person can answer is answered at once", func(t *testing.T) {
		_, server := startAsking(t)
		a := behind(t, server, &memory{}, person)
		w := ask(t, a, "greet")
		outcome, err := Answer(t.Context(), a.endpoint, w, *w.Input, saying(`{"name":"lost"}`))
		if err != nil || outcome == nil || !strings.Contains(string(outcome.Result), `answers {\"where\"`) {
			t.Error(outcome, err)
		}
	})

	t.Run("made again by the agent it is the same call", func(t *testing.T) {
		_, server := startAsking(t)
		a := behind(t, server, &memory{}, person)
		if first, second := ask(t, a, "greet"), ask(t, a, "greet"); first.CallID != second.CallID {
			t.Errorf("%s and %s", first.CallID, second.CallID)
		}
	})

	t.Run("an answer that may have got there is not given twice", func(t *testing.T) {
		s, server := startAsking(t)
		a := behind(t, server, &memory{}, person)
		w := ask(t, a, "greet")
		w.Input.Sent = true // as it is recorded before
		before := s.made()
		if _, err := Answer(t.Context(), a.endpoint, w, *w.Input, saying(`{}`)); !errors.Is(err, ErrUnknown) || s.made() != before {
			t.Error(err)
		}
	})

	t.Run("unless that is harmless", func(t *testing.T) {
		_, server := startAsking(t)
		a := behind(t, server, &memory{}, person)
		w := ask(t, a, "again")
		w.Input.Sent = true
		if outcome, err := Answer(t.Context(), a.endpoint, w, *w.Input, saying(`{}`)); err != nil || outcome == nil {
			t.Error(outcome, err)
		}
	})

	t.Run("what no person can answer is answered at once", func(t *testing.T) {
		_, server := startAsking(t)
		a := behind(t, server, &memory{}, person)
		if text := a.text("locate", `{}`); text != `answers {"where":{"roots":[]}}` {
			t.Error(text)
		}
	})

	for name, declines := range map[string]struct{ person, childProcess bool }{
		"a person is not asked if that is not wanted": {},
		"nor if the server would die with us":         {person: true, childProcess: true},
	} {
		t.Run(name, func(t *testing.T) {
			_, server := startAsking(t)
			server.ChildProcess = declines.childProcess
			a := behind(t, server, &memory{}, func(c *Hooks) { c.Person = declines.person })
			if text := a.text("greet", `{}`); text != `answers {"who":{"action":"decline"},"where":{"roots":[]}}` || len(a.suspended) > 0 {
				t.Error(text, a.suspended)
			}
		})
	}
}
