package suspend

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/wait"
)

// memory is a ledger that a test can look into.
type memory struct {
	mu      sync.Mutex
	entries map[CallKey][]*memoryEntry
}

type memoryEntry struct {
	Entry
	work  json.RawMessage
	ended bool
}

func (m *memory) Begin(_ context.Context, key CallKey) (Entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.entries == nil {
		m.entries = map[CallKey][]*memoryEntry{}
	}
	all := m.entries[key]
	if n := len(all); n > 0 && !all[n-1].ended {
		e := all[n-1].Entry
		e.New = false
		var err error
		e.Work, err = wait.DecodeWork(all[n-1].work)
		return e, err
	}
	e := &memoryEntry{Entry: Entry{ID: fmt.Sprintf("%s/%s/%d", key.Server, key.Tool, len(all)), New: true}}
	m.entries[key] = append(all, e)
	return e.Entry, nil
}

func (m *memory) find(id string) *memoryEntry {
	for _, all := range m.entries {
		for _, e := range all {
			if e.ID == id {
				return e
			}
		}
	}
	return nil
}

func (m *memory) Started(_ context.Context, w *wait.Work) (err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.find(w.CallID).work, err = json.Marshal(w)
	return err
}

func (m *memory) Work(_ context.Context, id string) (*wait.Work, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return wait.DecodeWork(m.find(id).work)
}

func (m *memory) Ended(_ context.Context, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.find(id).ended = true
	return nil
}

// agentOf is a client of the gateway that cannot wait.
type agentOf struct {
	t         *testing.T
	client    *mcp.Client
	access    *gateway.Access
	endpoint  *gateway.Endpoint
	mu        sync.Mutex
	suspended []wait.Work
	arrived   []wait.Work
	unknown   []wait.Work
	records   []Record
}

// behind puts a server behind a gateway, and connects with it.
func behind(t *testing.T, s gateway.Server, ledger Ledger, change func(*Hooks)) *agentOf {
	t.Helper()
	g, err := gateway.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	a := &agentOf{t: t}
	calls := &Hooks{
		Ledger: ledger, SoftWait: time.Second,
		Changed: func(w wait.Work, state State) {
			a.mu.Lock()
			defer a.mu.Unlock()
			switch state {
			case Suspended:
				a.suspended = append(a.suspended, w)
			case Arrived:
				a.arrived = append(a.arrived, w)
			case Unknown:
				a.unknown = append(a.unknown, w)
			}
		},
		Called: func(r Record) { a.mu.Lock(); defer a.mu.Unlock(); a.records = append(a.records, r) },
	}
	if change != nil {
		change(calls)
	}
	access, err := g.Open(gateway.AccessOptions{Servers: []gateway.Server{s}, Policy: calls.Policy})
	if err != nil {
		t.Fatal(err)
	}
	a.access, a.endpoint = access, access.Endpoint(s.Name)
	header := http.Header{}
	header.Set("Authorization", "Bearer "+access.Token())
	a.client, err = mcp.Connect(t.Context(), mcp.Target{URL: access.URL(s.Name), Header: header}, mcp.ClientOptions{Protocol: mcp.Legacy})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.client.Close() })
	return a
}

// text calls a tool and gives the text of its result.
func (a *agentOf) text(tool, arguments string) string {
	a.t.Helper()
	result, err := a.client.Call(a.t.Context(), mcp.Call{Method: mcp.MethodToolsCall, Params: json.RawMessage(fmt.Sprintf(`{"name":%q,"arguments":%s}`, tool, arguments))})
	if err != nil {
		return "error: " + err.Error()
	}
	var r struct {
		Content []struct {
			Text string `json:"text"`
		} `json:"content"`
		Meta json.RawMessage `json:"_meta"`
	}
	if err := json.Unmarshal(result, &r); err != nil || len(r.Content) == 0 {
		a.t.Fatalf("%s: %v", result, err)
	}
	if strings.Contains(string(r.Meta), gateway.MetaJob) {
		a.t.Errorf("the agent sees the handle: %s", result)
	}
	return r.Content[0].Text
}
