package suspend

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/wait"
)

// lossy lets requests through to a server of jobs, and loses its answers to START in one way or
// another.
type lossy struct {
	inner http.Handler
	lose  func(w http.ResponseWriter)
}

func (f *lossy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	seen := httptest.NewRecorder()
	f.inner.ServeHTTP(seen, r)
	if strings.Contains(seen.Body.String(), gateway.MetaJob+`":{"key"`) {
		f.lose(w)
		return
	}
	for k, v := range seen.Header() {
		w.Header()[k] = v
	}
	w.WriteHeader(seen.Code)
	_, _ = w.Write(seen.Body.Bytes()) // to a client that has gone
}

// A START that was sent and not answered may have started a job.
func TestStartThatIsBrokenOff(t *testing.T) {
	ways := map[string]func(w http.ResponseWriter){
		"by an error of a proxy":          func(w http.ResponseWriter) { w.WriteHeader(http.StatusGatewayTimeout) },
		"by the end of the connection":    func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
		"by an answer that is no message": func(w http.ResponseWriter) { _, _ = w.Write([]byte("{")) },
	}
	for name, lose := range ways {
		for _, dedup := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, deduplicated %v", name, dedup), func(t *testing.T) {
				meta := advertised
				if dedup {
					meta = `,"_meta":{"uipath.com/job":{"version":1},"evalrun.dev/idempotency":{"version":1}}`
				}
				s := &jobServer{t: t, meta: func(int) string { return meta }, call: func(jsonobj.Object) (string, *mcp.Error) { return aHandle, nil }}
				server := httptest.NewServer(&lossy{s, lose})
				t.Cleanup(server.Close)
				a := behind(t, gateway.Server{Name: "rpa", Protocol: mcp.Legacy, Target: mcp.Target{URL: server.URL}}, &memory{}, nil)
				a.text("run", "{}")
				a.text("run", "{}")
				keys := map[string]bool{}
				for _, call := range s.made() {
					keys[call.Object("_meta").Text(mcp.MetaIdempotencyKey)] = true
				}
				switch {
				case len(keys) != 1:
					t.Errorf("the job was started under %d keys", len(keys))
				case dedup && len(a.unknown) > 0, !dedup && (len(s.made()) != 1 || len(a.unknown) == 0):
					t.Errorf("%d calls, unknown: %v", len(s.made()), a.unknown)
				}
			})
		}
	}
}

// What a call has started is waited for, also if the client has not waited for the answer, and not
// if a later call brings the result.
func TestWorkOfACallThatNobodyWaitsFor(t *testing.T) {
	robot := func(call jsonobj.Object) (string, *mcp.Error) {
		if call.Object("_meta").Object(gateway.MetaJob).Has("key") {
			return ordinary, nil
		}
		return aHandle, nil
	}
	s := &jobServer{meta: func(int) string { return advertised }, call: robot}
	// A result may be fetched twice: once for the client that gives up in that moment.
	starts := func() (n int) {
		for _, call := range s.made() {
			if !call.Object("_meta").Object(gateway.MetaJob).Has("key") {
				n++
			}
		}
		return n
	}
	asked := make(chan struct{}, 1)
	var mu sync.Mutex
	done := false
	a := behind(t, startJobServer(t, s), &memory{}, func(c *Hooks) {
		c.SoftWait = time.Hour
		c.Check = func(context.Context, wait.Work) (wait.Status, error) {
			select {
			case asked <- struct{}{}:
			default:
			}
			mu.Lock()
			defer mu.Unlock()
			return wait.Status{Done: done, Payload: json.RawMessage(`{"state":"successful"}`)}, nil
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	if _, err := a.client.Call(ctx, mcp.Call{Method: mcp.MethodToolsCall, Params: json.RawMessage(`{"name":"run","arguments":{}}`)}); err == nil {
		t.Fatal("the call should have been given up")
	}
	mu.Lock()
	done = true
	mu.Unlock()
	got := a.text("run", "{}")
	a.mu.Lock()
	arrived := len(a.arrived)
	a.mu.Unlock()
	if got != "42" || arrived != 1 || starts() != 1 {
		t.Errorf("%q, arrived %d times, started %d times", got, arrived, starts())
	}

	// Once more, and the turn ends.
	mu.Lock()
	done = false
	mu.Unlock()
	for len(asked) > 0 {
		<-asked
	}
	ctx, cancel = context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	_, _ = a.client.Call(ctx, mcp.Call{Method: mcp.MethodToolsCall, Params: json.RawMessage(`{"name":"run","arguments":{"second":1}}`)}) // given up as well
	Settle(t.Context(), a.access, time.Minute)
	a.mu.Lock()
	waits := len(a.suspended)
	a.mu.Unlock()
	if waits != 1 {
		t.Errorf("%d suspensions", waits)
	}
	if got := a.text("run", `{"third":1}`); !strings.Contains(got, "turn is over") || starts() != 2 {
		t.Errorf("%q, started %d times", got, starts())
	}
}
