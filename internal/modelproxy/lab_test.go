package modelproxy_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/evalrun/evalrun/acp"
	"github.com/evalrun/evalrun/internal/modelproxy"
	"github.com/evalrun/evalrun/internal/peers/fakemcp"
	"github.com/evalrun/evalrun/internal/peers/fakemodel"
	"github.com/evalrun/evalrun/internal/testenv"
)

const labKey = "sk-the-real-key-of-the-lab"

// allow answers an agent's questions.
type allow struct{}

func (allow) Update(acp.Update) {}
func (allow) RequestPermission(_ context.Context, r acp.PermissionRequest) (acp.PermissionOutcome, error) {
	return acp.Allow(r.Options), nil
}

// startAgent starts an agent of the lab whose provider is the session.
func startAgent(t *testing.T, name string, s *modelproxy.Session) (conn *acp.Conn, cwd string) {
	t.Helper()
	labDir := testenv.LabDir(t)
	home, cwd := t.TempDir(), t.TempDir()
	port := s.URL()[strings.LastIndex(s.URL(), ":")+1:]
	out, err := exec.Command("node", filepath.Join(labDir, "agent.mjs"), name, "--home", home, "--llm", port).Output()
	if err != nil {
		testenv.Need(t, testenv.Lab, fmt.Errorf("%s is not installed, see CONTRIBUTING.md: %w", name, err))
	}
	var agent struct {
		Command []string
		Env     map[string]string
	}
	if err := json.Unmarshal(out, &agent); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(agent.Command[0], agent.Command[1:]...)
	cmd.Dir = cwd
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	for name, value := range agent.Env {
		switch name {
		case "GEMINI_API_KEY", "ANTHROPIC_API_KEY":
			value = s.Token()
		case "OPENCODE_CONFIG_CONTENT":
			value = strings.Replace(value, "sk-fake", s.Token(), 1)
		}
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	conn = acp.NewConn(stdin, stdout, allow{}, acp.Options{})
	t.Cleanup(func() {
		_ = conn.Close()
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // its own group
		conn.Wait()
		_ = cmd.Wait()
	})
	return conn, cwd
}

// Real agents through the proxy, over MCP servers of both HTTP transports: what is the agent's loop
// and what is not, what it used, a cancel, and a model that fails, which not every agent reports.
func TestRealAgents(t *testing.T) {
	if testing.Short() {
		t.Skip("real agents take seconds to start")
	}
	for _, name := range []string{"opencode", "claude", "gemini"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, err := fakemodel.Start(fakemodel.Options{Key: labKey})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			servers, err := fakemcp.StartHTTP(0)
			if err != nil {
				t.Fatal(err)
			}
			defer servers.Close()
			proxy, err := modelproxy.New(modelproxy.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer proxy.Close()
			s, err := proxy.Open(modelproxy.Upstream{URL: m.URL(), Key: labKey})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()

			s.Turn(false)
			conn, cwd := startAgent(t, name, s)
			if _, err := conn.Initialize(ctx, acp.Implementation{Name: "evalrun-test", Version: "1"}); err != nil {
				t.Fatal(err)
			}
			headers := []acp.KeyValue{{Name: "Authorization", Value: "Bearer " + servers.Token()}}
			session, err := conn.NewSession(ctx, acp.SessionParams{Cwd: cwd, MCPServers: []acp.MCPServer{
				{Name: "overhttp", Transport: acp.TransportHTTP, URL: servers.MCPURL(), Headers: headers},
				{Name: "oversse", Transport: acp.TransportSSE, URL: servers.SSEURL(), Headers: headers},
			}})
			if err != nil {
				t.Fatal(err)
			}
			listed := func(log []fakemcp.Entry) bool {
				seen := map[string]bool{}
				for _, e := range log {
					if e.Method == "tools/list" && e.Answered {
						seen[e.Transport] = true
					}
				}
				return len(seen) == 2
			}
			if err := servers.Wait(ctx, listed); err != nil {
				t.Fatalf("the tools were not listed: %v", err)
			}
			turn := func(text string) (acp.PromptResult, error) {
				s.Turn(true)
				defer s.Turn(false)
				return conn.Prompt(ctx, session.ID, acp.Text(text))
			}

			if _, err := turn("[[CALL probe_http {}]] [[CALL probe_sse {}]] [[SAY bye]]"); err != nil {
				t.Fatal(err)
			}
			u := s.Usage()
			if u.Main.Calls != 3 || u.Main.InputTokens != 3*fakemodel.InputTokens || u.Main.OutputTokens != 3*fakemodel.OutputTokens || len(u.Main.Errors) != 0 || s.Failure() != nil {
				t.Errorf("expected the 3 calls of the loop, got %+v, %v", u.Main, s.Failure())
			}
			var results []string
			for _, r := range m.Requests() {
				if r.API == "" || len(r.Tools) == 0 {
					continue
				}
				results = nil
				for _, message := range r.Messages {
					for _, result := range message.Results {
						results = append(results, result.Text)
					}
				}
			}
			if len(results) != 2 || !strings.Contains(results[0], servers.Marker(fakemcp.HTTP)) || !strings.Contains(results[1], servers.Marker(fakemcp.SSE)) {
				t.Errorf("the model was shown %q", results)
			}

			// A cancel while a tool runs.
			go func() {
				waits := func(e fakemcp.Entry) bool { return e.Tool == fakemcp.WaitTool }
				if servers.Wait(ctx, func(log []fakemcp.Entry) bool { return slices.ContainsFunc(log, waits) }) == nil {
					_ = conn.Cancel(ctx, session.ID)
				}
			}()
			if result, err := turn(`[[CALL wait {"ms":60000}]]`); err != nil || result.StopReason != "cancelled" {
				t.Errorf("got %+v, %v", result, err)
			}
			// gemini tells its servers nothing.
			if name != "gemini" {
				if err := servers.Wait(ctx, func(log []fakemcp.Entry) bool {
					return slices.ContainsFunc(log, func(e fakemcp.Entry) bool { return e.Tool == fakemcp.WaitTool && e.Cancelled })
				}); err != nil {
					t.Errorf("the server saw no cancel: %v", err)
				}
			}

			// A model that fails: whatever the agent says of it.
			result, err := turn("[[ERR 400]]")
			var failure *modelproxy.Failure
			if !errors.As(s.Failure(), &failure) || failure.Status != 400 {
				t.Errorf("got %v", s.Failure())
			}
			t.Logf("the agent says %s, %v; the proxy %v", result.StopReason, err, s.Failure())
			if u, err = s.Close(); err != nil || u.Main.Calls < 5 || u.Main.Errors["400"] == 0 {
				t.Errorf("got %+v, %v", u, err)
			}
			for _, r := range m.Requests() {
				if text, _ := json.Marshal(r.Header); strings.Contains(string(text), s.Token()) {
					t.Errorf("the token reached the provider: %s", text)
				}
			}
		})
	}
}
