package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	taskserver "github.com/evalrun/evalrun/fixtures/mcp/tasks/server"
	"github.com/evalrun/evalrun/internal/mcp"
)

// Requests are logged and counted, refused ones too, and never a token; /healthz is for
// everybody, /metrics for who bears the token.
func TestGatewayIsObserved(t *testing.T) {
	s, err := taskserver.New(taskserver.Options{Era: taskserver.Legacy})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(s)
	defer server.Close()
	defer s.Close()
	dir := t.TempDir()
	config, log := filepath.Join(dir, "mcp.json"), filepath.Join(dir, "requests.jsonl")
	if err := os.WriteFile(config, []byte(`{"mcpServers":{"tasks":{"url":"`+server.URL+`"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	g := &gatewayProcess{t: t, args: []string{config, "--store", filepath.Join(dir, "store"), "--request-log", log, "--aggregate"}}
	g.start()
	defer g.kill()
	authorization := g.servers["tasks"].Headers["Authorization"]
	token := strings.TrimPrefix(authorization, "Bearer ")
	base := strings.TrimSuffix(g.servers["tasks"].URL, "/mcp/tasks")
	get := func(path, authorization string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if authorization != "" {
			r.Header.Set("Authorization", authorization)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}

	c := g.connect(mcp.ClientOptions{Protocol: mcp.Legacy})
	callGateway(t, c, mcp.MethodToolsCall, `{"name":"echo","arguments":{"text":"a secret of the client"}}`)
	if _, err := c.Call(t.Context(), mcp.Call{Method: "no/such/method"}); err == nil {
		t.Error("a method that there is not was served")
	}
	if status, text := get("/healthz", ""); status != http.StatusOK || text != "ok\n" {
		t.Errorf("/healthz: %d %s", status, text)
	}
	for _, wrong := range []string{"", "Bearer wrong-" + token} {
		if status, _ := get("/metrics", wrong); status != http.StatusUnauthorized {
			t.Errorf("/metrics with %q: %d", wrong, status)
		}
	}
	get("/t/"+token+"x/mcp/tasks", "")
	if status, text := get("/mcp/task", authorization); status != http.StatusNotFound || !strings.Contains(text, "one of tasks, all") {
		t.Errorf("/mcp/task: %d %s", status, text)
	}
	status, metrics := get("/metrics", authorization)
	for _, line := range []string{
		`evalrun_gateway_requests_total{endpoint="tasks",method="initialize",outcome="ok"} 1`,
		`evalrun_gateway_requests_total{endpoint="tasks",method="tools/call",outcome="ok"} 1`,
		`evalrun_gateway_requests_total{endpoint="tasks",method="other",outcome="error"} 1`,
		`evalrun_gateway_refused_total{reason="token"} 3`,
		`evalrun_gateway_sessions{endpoint="tasks"} 1`,
		`evalrun_gateway_running_tasks 0`,
	} {
		if status != http.StatusOK || !strings.Contains(metrics, "\n"+line+"\n") {
			t.Errorf("/metrics: %d, %q is missing in\n%s", status, line, metrics)
		}
	}

	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), token) || strings.Contains(string(text), "a secret") {
		t.Errorf("the log has what is secret: %s", text)
	}
	var got []string
	for line := range strings.Lines(string(text)) {
		var e struct {
			Msg, Endpoint, Method, Name, Outcome, Client, Reason, Remote string
			Code                                                         int
			Time                                                         json.RawMessage
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.Time == nil || (e.Remote == "") != (e.Msg == "request") {
			t.Errorf("%s: %v", line, err)
		}
		got = append(got, strings.Join(strings.Fields(strings.Join([]string{e.Msg, e.Endpoint, e.Method, e.Name, e.Outcome, e.Client, e.Reason}, " ")), " "))
	}
	want := []string{
		"request tasks initialize ok evalrun", "request tasks tools/call echo ok", "request tasks no/such/method error",
		"refused GET token", "refused GET token", "refused GET token", "refused GET endpoint",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("logged:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A server that cannot be reached is left out of the endpoint of all servers, and named on stderr
// once.
func TestGatewayWarnsOfUnreachableServers(t *testing.T) {
	s, err := taskserver.New(taskserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(s)
	defer server.Close()
	defer s.Close()
	dir := t.TempDir()
	config := filepath.Join(dir, "mcp.json")
	servers := `{"mcpServers":{"there":{"url":"` + server.URL + `"},"gone":{"url":"http://` + freeAddress(t) + `/mcp"}}}`
	if err := os.WriteFile(config, []byte(servers), 0o600); err != nil {
		t.Fatal(err)
	}
	var stderr strings.Builder
	g := &gatewayProcess{t: t, args: []string{config, "--store", filepath.Join(dir, "store"), "--aggregate"}, stderr: &stderr}
	g.start()
	defer g.kill()
	g.servers["tasks"] = g.servers["all"]
	for _, era := range []mcp.Era{mcp.Legacy, mcp.Modern} {
		c := g.connect(mcp.ClientOptions{Protocol: era})
		if tools := callGateway(t, c, mcp.MethodToolsList, "{}").JSON(); !strings.Contains(string(tools), "there_echo") {
			t.Errorf("%s", tools)
		}
	}
	g.kill()
	if got := stderr.String(); strings.Count(got, `warning: MCP server "gone" cannot be reached: `) != 1 {
		t.Error(got)
	}
}
