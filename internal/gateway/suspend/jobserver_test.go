package suspend

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
)

// jobServer is an MCP server of 2025-11-25 that says what a test wants, and keeps the calls of its
// tools.
type jobServer struct {
	t *testing.T
	// meta is the _meta of its answer to initialize, advertised anew for each session.
	meta func(session int) string
	// tools, if not empty, is its list of tools.
	tools string
	// call answers tools/call.
	call func(params jsonobj.Object) (result string, err *mcp.Error)

	mu       sync.Mutex
	sessions []string
	calls    []jsonobj.Object
	// lost makes it forget the sessions that it has.
	lost bool
}

func startJobServer(t *testing.T, s *jobServer) gateway.Server {
	s.t = t
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return gateway.Server{Name: "rpa", Protocol: mcp.Legacy, Target: mcp.Target{URL: server.URL}}
}

func (s *jobServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodDelete {
		s.mu.Lock()
		if i := slices.Index(s.sessions, r.Header.Get("Mcp-Session-Id")); i >= 0 {
			s.sessions[i] = "" // the count goes on
		}
		s.mu.Unlock()
		return
	}
	if r.Method != http.MethodPost {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	o, _ := jsonobj.ParseObject(body)
	params := o.Object("params")
	if o.Get("id") == nil {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	s.mu.Lock()
	known := slices.Contains(s.sessions, r.Header.Get("Mcp-Session-Id"))
	s.mu.Unlock()
	result := "{}"
	switch method := o.Text("method"); {
	case method == mcp.MethodInitialize:
		s.mu.Lock()
		session := fmt.Sprintf("session-%d", len(s.sessions))
		meta := s.meta(len(s.sessions))
		s.sessions = append(s.sessions, session)
		s.mu.Unlock()
		w.Header().Set("Mcp-Session-Id", session)
		result = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"rpa","version":"1"}` + meta + `}`
	case !known:
		w.WriteHeader(http.StatusNotFound)
		return
	case method == mcp.MethodToolsList:
		if result = s.tools; result != "" {
			break
		}
		result = `{"tools":[{"name":"run","inputSchema":{"type":"object"},"outputSchema":{"type":"object"}},{"name":"read","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}]}`
	case method == mcp.MethodToolsCall:
		s.mu.Lock()
		s.calls = append(s.calls, params)
		lost := s.lost
		if lost {
			s.lost, s.sessions = false, append([]string{}, make([]string, len(s.sessions))...) // the count goes on
		}
		s.mu.Unlock()
		if lost {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		text, failed := s.call(params)
		if result = text; failed != nil {
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":%s}`, o.Get("id"), failed.JSON())
			return
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, o.Get("id"), result)
}

func (s *jobServer) made() []jsonobj.Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// sends is the section of the job contract in the _meta of a call; "none" if there is no _meta at
// all.
func sends(call jsonobj.Object) string {
	if !call.Has("_meta") {
		return "none"
	}
	return string(call.Object("_meta").Get(gateway.MetaJob))
}

const (
	advertised = `,"_meta":{"uipath.com/job":{"version":1}}`
	aHandle    = `{"content":[{"type":"text","text":"started"}],"_meta":{"uipath.com/job":{"key":"job-1","folderKey":"folder-1"}}}`
	ordinary   = `{"content":[{"type":"text","text":"42"}]}`
)
