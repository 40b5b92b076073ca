package acp

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	sdk "github.com/coder/acp-go-sdk"

	"github.com/evalrun/evalrun/internal/testenv"
)

// sdkAgent is an agent made with coder's SDK, which was written by others from the schema.
type sdkAgent struct {
	sdk.Agent // what is not implemented here is not called
	conn      *sdk.AgentSideConnection
	servers   []sdk.McpServer

	mu   sync.Mutex
	stop context.CancelFunc
}

func (a *sdkAgent) Initialize(context.Context, sdk.InitializeRequest) (sdk.InitializeResponse, error) {
	return sdk.InitializeResponse{
		ProtocolVersion: sdk.ProtocolVersionNumber,
		AgentInfo:       &sdk.Implementation{Name: "sdk", Version: "0.13.5"},
		AgentCapabilities: sdk.AgentCapabilities{LoadSession: true, McpCapabilities: sdk.McpCapabilities{Http: true},
			SessionCapabilities: sdk.SessionCapabilities{Resume: &sdk.SessionResumeCapabilities{}}},
	}, nil
}

func (a *sdkAgent) Authenticate(_ context.Context, r sdk.AuthenticateRequest) (sdk.AuthenticateResponse, error) {
	if r.MethodId != "api-key" {
		return sdk.AuthenticateResponse{}, sdk.NewInvalidParams("unknown method")
	}
	return sdk.AuthenticateResponse{}, nil
}

func (a *sdkAgent) NewSession(_ context.Context, r sdk.NewSessionRequest) (sdk.NewSessionResponse, error) {
	a.servers = r.McpServers
	return sdk.NewSessionResponse{SessionId: "s1"}, nil
}

func (a *sdkAgent) ResumeSession(context.Context, sdk.ResumeSessionRequest) (sdk.ResumeSessionResponse, error) {
	return sdk.ResumeSessionResponse{}, nil
}

func (a *sdkAgent) CloseSession(context.Context, sdk.CloseSessionRequest) (sdk.CloseSessionResponse, error) {
	return sdk.CloseSessionResponse{}, nil
}

func (a *sdkAgent) SetSessionMode(context.Context, sdk.SetSessionModeRequest) (sdk.SetSessionModeResponse, error) {
	return sdk.SetSessionModeResponse{}, nil
}

func (a *sdkAgent) SetSessionConfigOption(_ context.Context, r sdk.SetSessionConfigOptionRequest) (sdk.SetSessionConfigOptionResponse, error) {
	if r.Boolean == nil || !r.Boolean.Value {
		return sdk.SetSessionConfigOptionResponse{}, sdk.NewInvalidParams("not a boolean")
	}
	return sdk.SetSessionConfigOptionResponse{ConfigOptions: []sdk.SessionConfigOption{}}, nil
}

func (a *sdkAgent) LoadSession(ctx context.Context, r sdk.LoadSessionRequest) (sdk.LoadSessionResponse, error) {
	for range 5000 { // the SDK's own client loses the connection here
		if err := a.update(ctx, r.SessionId, sdk.UpdateAgentMessageText("replay ")); err != nil {
			return sdk.LoadSessionResponse{}, err
		}
	}
	return sdk.LoadSessionResponse{}, nil
}

func (a *sdkAgent) Cancel(context.Context, sdk.CancelNotification) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stop != nil {
		a.stop()
	}
	return nil
}

func (a *sdkAgent) update(ctx context.Context, id sdk.SessionId, u sdk.SessionUpdate) error {
	return a.conn.SessionUpdate(ctx, sdk.SessionNotification{SessionId: id, Update: u})
}

// Prompt does everything that an agent can ask a client for.
func (a *sdkAgent) Prompt(ctx context.Context, r sdk.PromptRequest) (sdk.PromptResponse, error) {
	text := r.Prompt[0].Text.Text
	if text == "wait" {
		ctx, cancel := context.WithCancel(ctx)
		a.mu.Lock()
		a.stop = cancel
		a.mu.Unlock()
		if err := a.update(ctx, r.SessionId, sdk.UpdateAgentThoughtText("waiting")); err != nil {
			return sdk.PromptResponse{}, err
		}
		<-ctx.Done()
		return sdk.PromptResponse{StopReason: sdk.StopReasonCancelled}, nil
	}
	path := filepath.Join(text, "file")
	var steps []error
	step := func(err error) { steps = append(steps, err) }
	step(a.update(ctx, r.SessionId, sdk.StartEditToolCall("c1", "edit", path, "hello")))
	permission, err := a.conn.RequestPermission(ctx, sdk.RequestPermissionRequest{
		SessionId: r.SessionId,
		ToolCall:  sdk.ToolCallUpdate{ToolCallId: "c1"},
		Options:   []sdk.PermissionOption{{OptionId: "yes", Name: "Yes", Kind: sdk.PermissionOptionKindAllowOnce}},
	})
	if step(err); permission.Outcome.Selected == nil || permission.Outcome.Selected.OptionId != "yes" {
		step(errors.New("not allowed"))
	}
	_, err = a.conn.WriteTextFile(ctx, sdk.WriteTextFileRequest{SessionId: r.SessionId, Path: path, Content: "hello"})
	step(err)
	read, err := a.conn.ReadTextFile(ctx, sdk.ReadTextFileRequest{SessionId: r.SessionId, Path: path})
	step(err)
	_, err = a.conn.ReadTextFile(ctx, sdk.ReadTextFileRequest{SessionId: r.SessionId, Path: "/etc/passwd"})
	if err == nil {
		step(errors.New("/etc/passwd can be read"))
	}
	terminal, err := a.conn.CreateTerminal(ctx, sdk.CreateTerminalRequest{SessionId: r.SessionId, Command: "cat", Args: []string{path}})
	step(err)
	exit, err := a.conn.WaitForTerminalExit(ctx, sdk.WaitForTerminalExitRequest{SessionId: r.SessionId, TerminalId: terminal.TerminalId})
	if step(err); exit.ExitCode == nil || *exit.ExitCode != 0 {
		step(errors.New("cat failed"))
	}
	output, err := a.conn.TerminalOutput(ctx, sdk.TerminalOutputRequest{SessionId: r.SessionId, TerminalId: terminal.TerminalId})
	step(err)
	_, err = a.conn.KillTerminal(ctx, sdk.KillTerminalRequest{SessionId: r.SessionId, TerminalId: terminal.TerminalId})
	step(err)
	_, err = a.conn.ReleaseTerminal(ctx, sdk.ReleaseTerminalRequest{SessionId: r.SessionId, TerminalId: terminal.TerminalId})
	step(err)
	step(a.update(ctx, r.SessionId, sdk.UpdateToolCall("c1", sdk.WithUpdateStatus(sdk.ToolCallStatusCompleted), sdk.WithUpdateRawOutput(output.Output))))
	step(a.update(ctx, r.SessionId, sdk.UpdateAgentMessageText("read "+read.Content)))
	if err := errors.Join(steps...); err != nil {
		return sdk.PromptResponse{}, err
	}
	return sdk.PromptResponse{StopReason: sdk.StopReasonEndTurn}, nil
}

func TestInteropWithAnAgentOfCodersSDK(t *testing.T) {
	in, _ := inAndOut(t)
	theirIn, ourOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	ourIn, theirOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	agent := &sdkAgent{}
	agent.conn = sdk.NewAgentSideConnection(agent, theirOut, theirIn)
	agent.conn.SetLogger(slog.New(slog.NewTextHandler(io.Discard, nil)))
	cl := &client{}
	c := NewConn(ourOut, ourIn, cl, Options{Files: openFiles(t, FilesOptions{Roots: folders(in)}), Terminals: openTerminals(t, TerminalsOptions{Roots: folders(in), Start: startCommand})})
	t.Cleanup(func() {
		c.Close()
		<-agent.conn.Done()
		theirOut.Close()
		c.Wait()
		theirIn.Close()
		ourIn.Close()
	})
	ctx := testContext(t)

	info, err := c.Initialize(ctx, Implementation{Name: "evalrun", Version: "1"})
	if err != nil || info.Agent.Name != "sdk" || !info.Capabilities.LoadSession || !info.Capabilities.Resume || info.Capabilities.Close ||
		!info.Capabilities.Accepts(TransportHTTP) || info.Capabilities.Accepts(TransportSSE) {
		t.Fatalf("got %+v, %v", info, err)
	}
	var agentError *AgentError
	if err := c.Authenticate(ctx, "other"); !errors.As(err, &agentError) || agentError.Code != CodeInvalidParams {
		t.Errorf("got %v", err)
	}
	if err := c.Authenticate(ctx, "api-key"); err != nil {
		t.Error(err)
	}
	withCwd := stdioServer
	withCwd.Cwd, withCwd.Env = "/workspace", []KeyValue{{"A", "b"}}
	s, err := c.NewSession(ctx, SessionParams{Cwd: in, MCPServers: []MCPServer{withCwd, httpServer, sseServer}})
	if err != nil || s.ID != "s1" {
		t.Fatalf("got %+v, %v", s, err)
	}
	if got := agent.servers; len(got) != 3 || got[0].Stdio == nil || got[0].Stdio.Command != "npx" || got[0].Stdio.Env[0].Value != "b" ||
		got[1].Http == nil || got[1].Http.Url != httpServer.URL || got[2].Sse == nil {
		t.Errorf("the agent was given %+v", got)
	}
	var calls ToolCalls
	cl.onUpdate = func(u Update) { calls.Apply(u) }
	if result, err := c.Prompt(ctx, s.ID, Text(in)); err != nil || result.StopReason != StopEndTurn || cl.text() != "read hello" {
		t.Errorf("got %+v, %v, %q", result, err, cl.text())
	}
	if all := calls.All(); len(all) != 1 || all[0].Kind != "edit" || all[0].Status != ToolCompleted || string(all[0].RawOutput) != `"hello"` ||
		!strings.Contains(string(all[0].RawInput), `"content":"hello"`) || !strings.Contains(string(all[0].Locations), "/file") {
		t.Errorf("got %+v", all)
	}

	waiting := make(chan struct{}, 1)
	cl.onUpdate = func(Update) { waiting <- struct{}{} }
	turn := background(func() PromptResult {
		result, err := c.Prompt(ctx, s.ID, Text("wait"))
		if err != nil {
			t.Error(err)
		}
		return result
	})
	testenv.Receive(t, waiting)
	if err := c.Cancel(ctx, s.ID); err != nil {
		t.Error(err)
	}
	if result := testenv.Receive(t, turn); result.StopReason != StopCancelled {
		t.Errorf("got %+v", result)
	}

	cl.onUpdate = nil
	before := cl.count()
	if _, err := c.LoadSession(ctx, s.ID, SessionParams{Cwd: in}); err != nil || cl.count()-before != 5000 {
		t.Errorf("got %v after %d updates", err, cl.count()-before)
	}
	if _, err := c.ResumeSession(ctx, s.ID, SessionParams{Cwd: in}); err != nil {
		t.Error(err)
	}
	if err := c.SetMode(ctx, s.ID, "plan"); err != nil {
		t.Error(err)
	}
	if _, err := c.SetConfigOption(ctx, s.ID, "fast", true); err != nil {
		t.Error(err)
	}
	if err := c.CloseSession(ctx, s.ID); err != nil {
		t.Error(err)
	}
	if err := c.SetModel(ctx, s.ID, "large"); !errors.As(err, &agentError) || agentError.Code != CodeMethodNotFound {
		t.Errorf("got %v", err)
	}
}
