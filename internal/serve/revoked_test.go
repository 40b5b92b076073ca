package serve_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/access"
	"github.com/evalrun/evalrun/internal/testenv"
)

// waiting is a request that is being answered, or waits for that.
type waiting struct {
	name string
	// ended has the status and the body when the answer has come to its end.
	ended chan answer
}

// begin sends a request that waits.
func (w *world) begin(name, token, method, path, body string, headers ...string) waiting {
	w.Helper()
	r, err := http.NewRequest(method, w.base+path, strings.NewReader(body))
	if err != nil {
		w.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	one := waiting{name, make(chan answer, 1)}
	go func() {
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			w.Errorf("%s: %v", name, err)
			close(one.ended)
			return
		}
		text, _ := io.ReadAll(resp.Body) // a stream may be cut off
		_ = resp.Body.Close()
		one.ended <- answer{resp, string(text)}
	}()
	return one
}

// What waits with a token that is revoked ends within five seconds; what waits with another goes on.
func TestARevokedTokenWaitsForNothing(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	w := newWorld(t)
	var job struct{ ID string }
	w.must(http.StatusCreated, "POST", "/jobs", `{"capability": "greet", "submitted_by": "test", "submitted_payload": {}}`).decode(t, &job)
	events := "/v1/runs/" + job.ID + "/events"
	listen := `{"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": {"notifications": {}, "_meta": {
 "io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}}}`
	stream := []string{"Accept", "text/event-stream"}
	begin := func(token string) []waiting {
		return []waiting{
			w.begin("a stream of events", token, "GET", events, "", stream...),
			w.begin("a long poll", token, "GET", events+"?after=1&wait=60", ""),
			w.begin("a wait for a job", token, "GET", "/jobs/"+job.ID+"?wait=60", ""),
			w.begin("a wait for its events", token, "GET", "/jobs/"+job.ID+"/events?wait=60", ""),
			w.begin("a subscription", token, "POST", "/mcp", listen, "Accept", "application/json, text/event-stream", "Content-Type", "application/json",
				"MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "subscriptions/listen"),
		}
	}
	token := w.newToken(access.Read)
	kept, revoked := begin(w.token), begin(token)
	if !testenv.Eventually(func() bool { return w.server.OpenCalls() == len(kept)+len(revoked) }) {
		t.Fatalf("%d calls are open", w.server.OpenCalls())
	}
	id, _, _ := strings.Cut(strings.TrimPrefix(token, "evr_"), "_")
	if err := w.Store().RevokeAccessToken(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for _, one := range revoked {
		a := testenv.Receive(t, one.ended, one.name)
		if isStream := a.StatusCode == http.StatusOK && a.Header.Get("Content-Type") == "text/event-stream"; !isStream && a.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s: %d %s", one.name, a.StatusCode, a.body)
		}
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
	if !testenv.Eventually(func() bool { return w.server.OpenCalls() == len(kept) }) {
		t.Errorf("%d calls are open", w.server.OpenCalls())
	}
	w.must(http.StatusOK, "POST", "/jobs/"+job.ID+"/cancel", `{}`)
	for _, one := range kept[:4] {
		if a := testenv.Receive(t, one.ended, one.name); a.StatusCode != http.StatusOK {
			t.Errorf("%s: %d %s", one.name, a.StatusCode, a.body)
		}
	}
}
