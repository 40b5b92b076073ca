package acpagent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/evalrun/evalrun/acp"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/gateway/suspend"
	"github.com/evalrun/evalrun/internal/record"
	"github.com/evalrun/evalrun/internal/testenv"
	"github.com/evalrun/evalrun/internal/wait"
)

// recordServer is an MCP server with tools of these names, which say what they were given.
func recordServer(t *testing.T, name string, tools ...string) acp.MCPServer {
	server := mcp.NewServer(&mcp.Implementation{Name: name, Version: "1"}, nil)
	for _, tool := range tools {
		server.AddTool(&mcp.Tool{Name: tool, InputSchema: map[string]any{"type": "object"}}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: name + " did " + tool + " " + string(r.Params.Arguments)}}}, nil
		})
	}
	web := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: true}))
	t.Cleanup(web.Close)
	return acp.MCPServer{Name: name, Transport: acp.TransportHTTP, URL: web.URL}
}

// noLedger is for servers that start nothing.
type noLedger struct{ suspend.Ledger }

// behindGateway has the servers of the rollout's segments behind a gateway.
func (r *rollout) behindGateway(servers ...acp.MCPServer) {
	g, err := gateway.Listen("127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = g.Close() })
	r.opts.Gateway, r.servers = g, servers
}

// called are the tool calls of a segment as evaluators read them: the name, the arguments and the
// output.
func (r *rollout) called(segment int) (calls []string) {
	r.t.Helper()
	spans, skipped, err := record.ReadTrace(r.history[segment])
	if err != nil || skipped > 0 {
		r.t.Fatal(skipped, err)
	}
	for _, raw := range spans {
		var span struct {
			Attributes struct {
				Name   string                    `json:"tool.name"`
				Input  string                    `json:"input.value"`
				Output *struct{ Content string } `json:"output.value"`
			} `json:"attributes"`
		}
		if err := json.Unmarshal(raw, &span); err != nil {
			r.t.Fatal(err)
		}
		text := span.Attributes.Name + " " + span.Attributes.Input
		if o := span.Attributes.Output; o != nil {
			text += ": " + o.Content
		}
		calls = append(calls, text)
	}
	return calls
}

// Whatever an agent reports of its calls, evaluators know those of MCP servers as the gateway has
// seen them, each once.
func TestCallsAreThoseThatTheGatewaySaw(t *testing.T) {
	testenv.NeedSlow(t)
	for fault, told := range map[string]string{"": "records.read", "tell-little": "a tool"} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			r := newRollout(t)
			r.setenv("ACP_AGENT_FAULT", fault)
			r.behindGateway(recordServer(t, "records", "read", "echo"), recordServer(t, "other", "echo"))
			r.prompt(`[[CALL records.read {"id":"7"}]] [[UPDATE {"sessionUpdate":"tool_call","toolCallId":"own","name":"Bash","title":"ls","status":"completed","rawInput":{"command":"ls"},"rawOutput":"a b"}]]
				[[CALL other.echo {"x":1}]] [[CALL records.echo {"x":1}]]`)
			want := []string{`read {"id":"7"}: records did read {"id":"7"}`, `Bash {"command":"ls"}: a b`, `other/echo {"x":1}: other did echo {"x":1}`, `records/echo {"x":1}: records did echo {"x":1}`}
			if got := r.called(0); !slices.Equal(got, want) {
				t.Errorf("got %q", got)
			}
			calls := r.events(0, record.EventToolCall)
			if len(calls) != 4 || calls[0].Call.Title != told || calls[0].Call.Name != "read" || calls[0].Call.Server != "records" || string(calls[0].Call.Input) != `{"id":"7"}` {
				t.Errorf("got %+v", calls[0].Call)
			}
		})
	}
}

// Codex sends what commands print in pieces, apart from its updates.
func TestWhatCommandsPrintIsInTheTrajectory(t *testing.T) {
	t.Parallel()
	r := newRollout(t)
	r.prompt(`[[UPDATE {"sessionUpdate":"tool_call","toolCallId":"c","name":"exec_command","kind":"execute","title":"ls","status":"in_progress","content":[{"type":"terminal","terminalId":"c"}],"rawInput":{"command":"ls","cwd":"/app"}}]]
		[[UPDATE {"sessionUpdate":"tool_call_update","toolCallId":"c","_meta":{"terminal_output_delta":{"data":"one\n"}}}]]
		[[UPDATE {"sessionUpdate":"tool_call_update","toolCallId":"c","status":"completed","_meta":{"terminal_output_delta":{"data":"two\n"},"terminal_exit":{"exit_code":0}}}]]`)
	if call := r.events(0, record.EventToolCall)[0].Call; call.Text() != "one\ntwo\n" {
		t.Errorf("got %+v", call)
	}
	if got := r.called(0); len(got) != 1 || !strings.HasPrefix(got[0], "exec_command ") || !strings.HasSuffix(got[0], ": one\ntwo\n") {
		t.Errorf("got %q", got)
	}
}

// A call that was not allowed was not made; and one that a person had to allow first counts
// once.
func TestACallThatIsRejectedFirstCountsOnce(t *testing.T) {
	t.Parallel()
	r := suspending(t, "-ask")
	r.behindGateway(recordServer(t, "records", "read"))
	out := r.prompt(`[[CALL records.read {"id":"7"}]]`)
	first := ids(t, out)
	if got := r.called(0); got != nil || out.Info.MCPServers[0].Calls != 0 {
		t.Errorf("got %q, %+v", got, out.Info.MCPServers)
	}
	if payload := string(out.Interrupts[0].Specs[0].Payload); payload != `{"input":{"id":"7"},"kind":"other","server":"records","title":"records.read","tool":"read","what":"permission"}` {
		t.Errorf("got the payload %s", payload)
	}
	out = r.run(r.directed(first[0], `[[CALL records.read {"id":"7"}]]`))
	content(t, out)
	if got := r.called(1); len(got) != 1 || out.Info.MCPServers[0].Calls != 1 {
		t.Errorf("got %q, %+v", got, out.Info.MCPServers)
	}
}

// An agent that asks before it knows the arguments is answered when the gateway has them; the
// permission is for these and no others.
func TestAPermissionWithoutArgumentsIsDecidedAtTheGateway(t *testing.T) {
	t.Parallel()
	r := suspending(t, "-ask")
	r.setenv("ACP_AGENT_FAULT", "ask-early")
	r.behindGateway(recordServer(t, "records", "read"))
	out := r.prompt(`[[CALL records.read {"id":"7"}]]`)
	first := ids(t, out)
	if payload := string(out.Interrupts[0].Specs[0].Payload); payload != `{"input":{"id":"7"},"kind":"other","server":"records","title":"read","tool":"read","what":"permission"}` {
		t.Errorf("got the payload %s", payload)
	}
	if got := r.said(0); r.called(0) != nil || out.Info.MCPServers[0].Calls != 0 || len(got) != 1 || !strings.Contains(got[0], "a person has to allow it first") {
		t.Errorf("got %q, %+v", r.called(0), got)
	}
	out = r.run(r.directed(first[0], `[[CALL records.read {"id":"8"}]] [[CALL records.read {"id":"7"}]] [[CALL records.read {"id":"7"}]]`))
	second := ids(t, out)
	if got := r.called(1); len(got) != 1 || got[0] != `read {"id":"7"}: records did read {"id":"7"}` || len(second) != 2 || second[1] != first[0] {
		t.Errorf("got %q, %v after %v", got, second, first)
	}
}

// What cannot be told from something else is not allowed by what was allowed before.
func TestWhatIsNotNamedIsAskedForEachTime(t *testing.T) {
	for name, ask := range map[string]string{
		"no tool":                 `[[ASK other ? {"id":"7"}]]`,
		"no tool, but a kind":     `[[ASK execute ? {"command":"ls"}]]`,
		"no arguments, no server": `[[ASK other fetch null]]`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := suspending(t)
			out := r.prompt(ask)
			first := ids(t, out)
			if !strings.Contains(string(out.Interrupts[0].Specs[0].Payload), `"note":"the agent does not say`) {
				t.Errorf("got the payload %s", out.Interrupts[0].Specs[0].Payload)
			}
			if second := ids(t, r.run(r.directed(first[0], ask))); len(second) != 1 {
				t.Errorf("got %v", second)
			}
			if prompt := r.events(1, record.EventPrompt)[0].Text; !strings.Contains(prompt, "you will have to ask again") {
				t.Errorf("got the prompt %q", prompt)
			}
		})
	}
}

// A permission is used up before the call is let through. An attempt that is repeated after a
// crash asks again, and so does one that cannot record the use.
func TestAPermissionIsUsedOnceInAllAttempts(t *testing.T) {
	t.Parallel()
	r := suspending(t)
	first := ids(t, r.prompt(`[[ASK edit Write {"path":"a"}]]`))
	used := map[string]bool{}
	attempt := func(consume func(context.Context, string) (bool, error)) agent.Outcome {
		seg := r.directed(first[0], `[[ASK edit Write {"path":"a"}]]`)
		seg.History, seg.Consume = r.history[:1], consume
		return r.run(seg)
	}
	consume := func(_ context.Context, trigger string) (bool, error) {
		before := used[trigger]
		used[trigger] = true
		return !before, nil
	}
	if got := content(t, attempt(consume)); got != "allowed" || !used["t"] {
		t.Errorf("got %q, %v", got, used)
	}
	if again := ids(t, attempt(consume)); again[0] != first[0] {
		t.Errorf("got %v after %v", again, first)
	}
	failed := attempt(func(context.Context, string) (bool, error) { return true, errors.New("the disk is full") })
	mustFault(t, failed, fault.Interrupted, "the use of a permission could not be recorded: the disk is full")
}

// The result of work may arrive at any time, and is not waited for then.
func TestWorkArrivesWhileTheTurnEnds(t *testing.T) {
	t.Parallel()
	for i := range 20 {
		trail := record.OpenTrajectory(t.TempDir(), nil, time.Now)
		pending := newPendingRequests(time.Minute)
		c := &conversation{trail: trail, calls: newCallRecorder(time.Now, toolNames{}, &servers{})}
		for n := range 4 {
			c.record.Pending = append(c.record.Pending, request{Interrupt: fmt.Sprint("call-", n), What: requestWork, Call: &startedCall{CallID: fmt.Sprint(n)}, work: &wait.Work{CallID: fmt.Sprint(n), Job: &wait.JobHandle{}}})
		}
		var arriving sync.WaitGroup
		arriving.Go(func() { pending.workArrived(wait.Work{CallID: fmt.Sprint(i % 4)}) })
		now, left := pending.list(c.record.Pending)
		c.record.Pending = left
		c.suspend(now)
		arriving.Wait()
		if _, c.record.Pending = pending.list(c.record.Pending); len(c.record.Pending) != 3 {
			t.Fatalf("%d are waited for", len(c.record.Pending))
		}
	}
}
