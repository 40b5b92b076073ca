package acp

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/evalrun/evalrun/internal/testenv"
)

// roleVariable makes the test program play another part.
const roleVariable = "EVALRUN_ACP_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case "mcp":
		_ = toolServer("stdio").Run(context.Background(), &mcp.StdioTransport{}) // its client goes away
		return
	case "thin":
		serveThin(os.Stdin, os.Stdout)
		return
	}
	code := m.Run()
	testenv.RemoveAgent()
	os.Exit(code)
}

// toolServer is an MCP server with one tool, which says what it is and what it was told at its
// start.
func toolServer(told string) *mcp.Server {
	type in struct {
		Text string `json:"text"`
	}
	server := mcp.NewServer(&mcp.Implementation{Name: "tools", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "echo"}, func(_ context.Context, req *mcp.CallToolRequest, p in) (*mcp.CallToolResult, any, error) {
		if header := req.Extra; header != nil && header.Header != nil {
			told = header.Header.Get("X-Told")
		}
		text := fmt.Sprintf("%s%s: %s", told, os.Getenv("TOLD"), p.Text)
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil, nil
	})
	return server
}

// agentProcess is a running acp-agent and the connection to it.
type agentProcess struct {
	*Conn
	t      *testing.T
	cmd    *exec.Cmd
	ended  chan struct{}
	client *client
	home   string
	cwd    string
}

// startAgent starts the agent; home "" makes a new one. Faults are ACP_AGENT_FAULT.
func startAgent(t *testing.T, home, faults string, o Options, args ...string) *agentProcess {
	t.Helper()
	a := &agentProcess{t: t, client: &client{}, home: home, ended: make(chan struct{})}
	if home == "" {
		a.home = t.TempDir()
	}
	a.cwd = filepath.Join(a.home, "workspace")
	if err := os.MkdirAll(a.cwd, 0o700); err != nil {
		t.Fatal(err)
	}
	a.cmd = exec.Command(testenv.BuiltAgent(t), args...)
	a.cmd.Env = append(os.Environ(), "HOME="+a.home, "ACP_AGENT_FAULT="+faults)
	a.cmd.Stderr = t.Output()
	stdin, err := a.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	// Not StdoutPipe: Wait would close it before the last of it is read.
	stdout, agentEnd, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	a.cmd.Stdout = agentEnd
	if err := a.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	agentEnd.Close()
	go func() {
		_ = a.cmd.Wait() // how it ended is in ProcessState
		close(a.ended)
	}()
	a.Conn = NewConn(stdin, stdout, a.client, a.client.options(o))
	t.Cleanup(func() {
		a.Close()
		a.kill()
		a.Wait()
		stdout.Close()
	})
	return a
}

// kill ends the process at once.
func (a *agentProcess) kill() {
	_ = a.cmd.Process.Kill() // it may have ended
	<-a.ended
}

// endsWithin says whether the process ends by itself.
func (a *agentProcess) endsWithin(d time.Duration) bool {
	select {
	case <-a.ended:
		return true
	case <-time.After(d):
		return false
	}
}

// open initializes the connection and makes a session.
func (a *agentProcess) open(servers ...MCPServer) Session {
	a.t.Helper()
	if _, err := a.Initialize(testContext(a.t), Implementation{Name: "test", Version: "1"}); err != nil {
		a.t.Fatal(err)
	}
	s, err := a.NewSession(testContext(a.t), SessionParams{Cwd: a.cwd, MCPServers: servers})
	if err != nil {
		a.t.Fatal(err)
	}
	return s
}

// say runs a turn that has to end well, and returns what the agent said in it.
func (a *agentProcess) say(s Session, prompt string) string {
	a.t.Helper()
	before := len(a.client.text())
	result, err := a.Prompt(testContext(a.t), s.ID, Text(prompt))
	if err != nil || result.StopReason != StopEndTurn {
		a.t.Fatalf("%s: got %+v, %v", prompt, result, err)
	}
	return a.client.text()[before:]
}

// recorded says whether a line with all these texts was recorded. The connection has to be closed.
func (a *agentProcess) recorded(texts ...string) bool {
	a.Close()
	a.kill()
	a.Wait()
next:
	for _, line := range a.client.lines {
		for _, text := range texts {
			if !strings.Contains(line, text) {
				continue next
			}
		}
		return true
	}
	return false
}
