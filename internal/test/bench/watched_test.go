package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/evalrun/evalrun/fixtures/mcp/tasks/server"
	"github.com/evalrun/evalrun/internal/store"
)

// BenchmarkWatchedTasks runs the real executor over 10,000 rollouts that wait for MCP tasks, each
// of which is asked for once a minute.
func BenchmarkWatchedTasks(b *testing.B) {
	if _, err := os.Stat("/proc/self/status"); err != nil {
		b.Skip("reads /proc")
	}
	tasks, err := server.New(server.Options{Never: true, Poll: time.Minute, TTL: -1})
	if err != nil {
		b.Fatal(err)
	}
	var asked atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		tasks.ServeHTTP(w, r)
	}))
	b.Cleanup(func() { s.Close(); tasks.Close() })
	begun := time.Now()
	dir := suspendedStore(b, func(i int) store.NewTrigger {
		spec := fmt.Sprintf(`{"type":"MCP_TASK","name":"MCP_TASK","itemKey":"task-%d","payload":{"tool":"compute"},"watch":{
			"work":{"callId":"c","server":"compute","tool":"compute","arguments":{},"task":{"taskId":%q,"era":"modern","status":"working","createdAt":"2026-11-21T10:00:00Z","ttlMs":null,
			"pollIntervalMs":60000,"session":{"era":"modern","version":"2026-07-28"}}},
			"server":{"name":"compute","transport":"streamable-http","url":%q}}}`, i, newTask(b, s.URL+"/mcp"), s.URL+"/mcp")
		return store.NewTrigger{
			InterruptID: "i", Type: "MCP_TASK", Name: "MCP_TASK", Source: "mcp", ItemKey: fmt.Sprint("task-", i), Spec: json.RawMessage(spec), Checked: true,
			NextCheck: begun.Add(20*time.Second + time.Duration(i)*time.Minute/time.Duration(suspended())), // when the executor runs, spread over a minute
		}
	})
	asked.Store(0)
	measureExecutor(b, buildProgram(b), dir)
	b.ReportMetric(float64(asked.Load()), "asked")
}

// newTask starts a task, and returns its id.
func newTask(b *testing.B, url string) string {
	b.Helper()
	const call = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"compute","arguments":{"ms":1,"text":"x"},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"},"io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}}}`
	req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, url, bytes.NewReader([]byte(call)))
	if err != nil {
		b.Fatal(err)
	}
	for k, v := range map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "compute"} {
		req.Header.Set(k, v)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }() // read to its end
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		b.Fatal(err)
	}
	if at := bytes.IndexByte(data, '{'); at >= 0 { // of an event stream, too
		data = data[at:]
	}
	var answer struct {
		Result struct {
			TaskID string `json:"taskId"`
		} `json:"result"`
	}
	if err := json.NewDecoder(bytes.NewReader(data)).Decode(&answer); err != nil || answer.Result.TaskID == "" {
		b.Fatalf("%s: %v", data, err)
	}
	return answer.Result.TaskID
}
