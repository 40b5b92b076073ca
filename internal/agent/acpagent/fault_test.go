package acpagent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/acp"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/sandbox"
	"github.com/evalrun/evalrun/internal/testenv"
	"github.com/evalrun/evalrun/internal/wait"
)

// enough is how long any of the faults below may take: what they wait for are limits of less than a
// second. It is a safety net for slow machines.
const enough = 2 * time.Minute

// TestAgentsThatMisbehave has an agent for each way to go wrong. Each ends in its category, in
// time, and nothing is left (which rollout.run checks).
func TestAgentsThatMisbehave(t *testing.T) {
	testenv.NeedSlow(t)
	for name, tt := range map[string]struct {
		fault  string // of the whole process
		prompt string
		change func(r *rollout, seg *agent.Segment)
		want   fault.Category // of the fault, or the limit
		limit  bool
		text   string
	}{
		"dies at initialize":       {fault: "die:initialize", want: fault.Handshake, text: "the agent ended before its session was open with exit status 7"}, // A26
		"dies at session/new":      {fault: "die:session/new", want: fault.Handshake, text: "the agent ended before its session was open with exit status 7"},
		"dies at the prompt":       {fault: "die:session/prompt", want: fault.Exit, text: "exit status 7"},
		"dies in the turn":         {prompt: "[[SAY a]] [[FAULT die:prompt]]", want: fault.Exit, text: "exit status 7"},
		"dies in a line":           {prompt: "[[FAULT die:mid-update]]", want: fault.Exit, text: "exit status 7"},
		"never answers initialize": {fault: "hang:initialize", want: fault.Handshake, text: "did not answer initialize", change: shortHandshake},
		"never opens the session":  {fault: "hang:session/new", want: fault.Handshake, text: "did not open its session", change: shortHandshake},
		"never answers the prompt": {fault: "hang:session/prompt", want: fault.Timeout, limit: true, change: shortTimeout},
		"says nothing":             {fault: "hang:session/prompt", want: fault.Idle, limit: true, change: shortIdle},
		"is deaf to a cancel and to the end": {fault: "ignore-eof;ignore-term", prompt: "[[FAULT hang:prompt]]", want: fault.Timeout, limit: true,
			change: shortTimeout},
		"answers initialize with no result":       {fault: "noresult:initialize", want: fault.Protocol, text: "initialize"},
		"answers session/new with no result":      {fault: "noresult:session/new", want: fault.Protocol, text: "session/new"},
		"answers the prompt with no result":       {fault: "noresult:session/prompt", want: fault.Protocol, text: "session/prompt"},
		"answers initialize with another version": {fault: `answer:initialize={"protocolVersion":2}`, want: fault.Protocol, text: "protocol version 2"},
		"answers session/new with no id":          {fault: `answer:session/new={}`, want: fault.Protocol, text: "no sessionId"},
		"answers the prompt with no reason":       {fault: `answer:session/prompt={}`, want: fault.Protocol, text: "no stopReason"},
		"answers the prompt with a list":          {fault: `answer:session/prompt=[]`, want: fault.Protocol, text: "no object"},
		"answers with an error":                   {prompt: "[[FAULT error:-32603]]", want: fault.AgentError, text: "failed on request"},
		"answers with the status of its provider": {prompt: "[[FAULT error:401]]", want: fault.AgentError, text: "401"},
		"sends a line of 64 MB":                   {prompt: "[[FAULT longline:67108864]]", want: fault.Protocol, text: "too long"},
		"says more than it may in a line":         {prompt: "[[FAULT longline:20000000]]", want: fault.OutputLimit, limit: true},
		"says more than it may in 100,000 updates": {prompt: "[[FAULT flood:100000]]", want: fault.OutputLimit, limit: true,
			change: func(_ *rollout, seg *agent.Segment) { seg.OutputBytes = 1 << 20 }},
		"says a little more than it may": {prompt: "[[SAY four]]", want: fault.OutputLimit, limit: true, change: func(_ *rollout, seg *agent.Segment) { seg.OutputBytes = 3 }},
		"needs an unknown method of authentication": {want: fault.AgentError, // A24
			text: `unknown authentication method oauth; the agent announces: "api-key" (API key); the "authMethod" of its entry is "oauth"`, change: func(r *rollout, _ *agent.Segment) { SettingsOf(r.entry).AuthMethod = "oauth" }},
		"has no such option": {want: fault.AgentError, text: "unknown option", change: func(r *rollout, _ *agent.Segment) {
			SettingsOf(r.entry).ConfigOptions = map[string]string{"colour": "red"}
		}},
		"wants to be authenticated": {prompt: "", fault: "error:session/new=-32000", want: fault.AgentError, // A24
			text: `the agent answered error -32000: failed on request; the agent announces: "api-key" (API key); its entry has no "authMethod"`},
		"says that its turn was cancelled": {fault: `answer:session/prompt={"stopReason":"cancelled"}`, want: fault.AgentError, text: "nobody has cancelled it"}, // A26
		"is no ACP agent": {want: fault.Handshake, text: "in place of JSON-RPC:\nusage: tool FILE", change: func(r *rollout, _ *agent.Segment) {
			r.entry.Command = []string{"/bin/sh", "-c", "echo usage: tool FILE; exit 1"}
		}},
		"is not installed": {want: fault.Start, text: "npm install -g @agentclientprotocol/codex-acp", change: func(r *rollout, _ *agent.Segment) {
			r.entry.Command = []string{"codex-acp"}
			r.setenv("PATH", "/bin")
		}},
		"is not there":                  {want: fault.Start, text: "looked for", change: func(r *rollout, _ *agent.Segment) { r.entry.Command = []string{"./no-such-agent"} }},
		"needs a variable":              {want: fault.Start, text: "${NOT_SET_ANYWHERE}", change: func(r *rollout, _ *agent.Segment) { r.setenv("A", "${NOT_SET_ANYWHERE}") }},
		"has a setup that fails":        {want: fault.Setup, text: "the disk is missing", change: withSetup("echo the disk is missing; exit 3")},
		"has a setup that does not end": {want: fault.Timeout, change: func(r *rollout, seg *agent.Segment) { withSetup("sleep 600")(r, seg); shortTimeout(r, seg) }},
		"cannot use the server's transport": {want: fault.MCP, text: `"lab": the agent does not advertise the transport http`, change: func(r *rollout, seg *agent.Segment) {
			r.entry.Command = append(r.entry.Command, "-no-http")
			seg.Servers = []acp.MCPServer{{Name: "lab", Transport: acp.TransportHTTP, URL: "http://127.0.0.1:1/mcp"}}
		}},
		"has a server that nobody can reach": {want: fault.MCP, text: `"lab": it cannot be reached`, change: func(_ *rollout, seg *agent.Segment) {
			seg.Servers = []acp.MCPServer{{Name: "lab", Transport: acp.TransportSSE, URL: "http://127.0.0.1:1/mcp"}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRollout(t)
			r.setenv("ACP_AGENT_FAULT", tt.fault)
			seg := r.segment(tt.prompt)
			if tt.change != nil {
				tt.change(r, &seg)
			}
			began := time.Now()
			out := r.run(seg)
			if took := time.Since(began); took > enough {
				t.Errorf("it took %v", took)
			}
			if tt.limit {
				mustLimit(t, out, tt.want)
				return
			}
			mustFault(t, out, tt.want, tt.text)
			if out.Limit != nil {
				t.Errorf("got the limit %v", out.Limit)
			}
		})
	}
}

func shortHandshake(r *rollout, _ *agent.Segment) { r.bounds.handshake = 300 * time.Millisecond }

func shortTimeout(r *rollout, seg *agent.Segment) {
	seg.Timeout, r.bounds.cancel = 700*time.Millisecond, 200*time.Millisecond
}

func shortIdle(r *rollout, _ *agent.Segment) {
	r.bounds.idle, r.bounds.cancel = 300*time.Millisecond, 200*time.Millisecond
}

func withSetup(command string) func(*rollout, *agent.Segment) {
	return func(_ *rollout, seg *agent.Segment) {
		seg.Sandbox.Setup = &sandbox.Setup{Commands: []sandbox.SetupCommand{{Command: command}}}
	}
}

// What an agent may do and still end well.
func TestAgentsThatAreTolerated(t *testing.T) {
	testenv.NeedSlow(t)
	for name, tt := range map[string]struct{ fault, prompt, want string }{
		"greets like a shell":                {"garbage", "[[SAY hi]]", "hi"},
		"logs in the middle of a turn":       {"", "[[SAY one]] [[FAULT garbage]] [[SAY two]]", "onetwo"},
		"glues lines together":               {"glue", "[[SAY hi]]", "hi"},
		"ignores the end of its stdin":       {"ignore-eof", "[[SAY hi]]", "hi"},
		"ignores SIGTERM as well":            {"ignore-eof;ignore-term", "[[SAY hi]]", "hi"},
		"leaves an orphan":                   {"orphan", "[[SAY hi]]", ""},
		"asks what we do not know":           {"", "[[FAULT unknown-request]]", "-32601"},
		"asks for files that it cannot have": {"", "[[FAULT outside]]", "-32601"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRollout(t)
			r.setenv("ACP_AGENT_FAULT", tt.fault)
			if got := content(t, r.prompt(tt.prompt)); !strings.Contains(got, tt.want) {
				t.Errorf("got %q", got)
			}
		})
	}
}

func TestAFloodOfUpdatesIsRecordedWhole(t *testing.T) {
	testenv.NeedLong(t)
	t.Parallel()
	r := newRollout(t)
	out := r.prompt("[[FAULT flood:100000]] [[SAY end]]")
	if got := content(t, out); len(got) != 100000*100+3 || !strings.HasSuffix(got, "99999end") {
		t.Errorf("got %d bytes", len(got))
	}
	if n := len(r.sent(0, "agent", "agent_message_chunk")); n != 100001 {
		t.Errorf("%d lines were recorded", n)
	}
}

// scripted makes the agent a shell script that has opened a session.
func (r *rollout) scripted(then string) {
	script := `read -r l; echo '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1,"agentCapabilities":{}}}'
read -r l; echo '{"jsonrpc":"2.0","id":2,"result":{"sessionId":"s"}}'
` + then
	r.entry.Command = []string{"/bin/sh", "-c", script}
}

func TestAnAgentThatDoesNotReadCannotBeToldToStop(t *testing.T) {
	t.Parallel()
	r := newRollout(t)
	r.scripted("exec sleep 600")
	seg := r.segment(strings.Repeat("more than a pipe holds ", 50_000))
	shortTimeout(r, &seg)
	began := time.Now()
	mustLimit(t, r.run(seg), fault.Timeout)
	if took := time.Since(began); took > enough {
		t.Errorf("it took %v", took)
	}
}

func TestWhatAnAgentSendsIsBounded(t *testing.T) {
	t.Parallel()
	r := newRollout(t)
	r.scripted("exec yes 'this is no message'")
	r.bounds.wire, r.bounds.cancel = 1<<20, 200*time.Millisecond
	mustLimit(t, r.prompt("go"), fault.OutputLimit)
	if info, err := os.Stat(filepath.Join(r.history[0], FileWire)); err != nil || info.Size() > 10<<20 {
		t.Errorf("got %v, %v", info, err)
	}
}

func TestAnAgentThatIsInterrupted(t *testing.T) {
	t.Parallel()
	r := newRollout(t)
	seg := r.segment("[[RUN touch started]] [[WAIT]]")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		for ; ctx.Err() == nil; time.Sleep(time.Millisecond) { // nothing tells of a file
			if _, err := os.Stat(filepath.Join(r.cwd, "started")); err == nil {
				cancel(errors.New("SIGTERM"))
			}
		}
	}()
	a := New(r.entry, r.opts)
	out, err := a.Run(ctx, seg)
	if err != nil {
		t.Fatal(err)
	}
	mustFault(t, out, fault.Interrupted, "SIGTERM")
	if n, err := sandbox.Sweep(seg.Marker); n != 0 || err != nil {
		t.Errorf("%d processes were left, %v", n, err)
	}
	if out, err = a.Run(ctx, seg); err != nil {
		t.Fatal(err)
	}
	mustFault(t, out, fault.Interrupted, "SIGTERM")
}

func TestWhatAnAgentLeavesInItsHomeIsNoTrap(t *testing.T) {
	testenv.NeedSlow(t)
	for name, tt := range map[string]struct {
		leave string
		want  fault.Category
	}{
		"a named pipe": {"rm ~/.config/agent.json; mkfifo ~/.config/agent.json", ""},
		"a link":       {"rm ~/.config/agent.json; ln -s ../../outside ~/.config/agent.json", ""},
		"a folder":     {"rm ~/.config/agent.json; mkdir -p ~/.config/agent.json/x", fault.Setup},
		"no folder":    {"rm -r ~/.config; touch ~/.config", fault.Setup},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRollout(t)
			SettingsOf(r.entry).Files = map[string]string{".config/agent.json": `{"home":"{home}"}`}
			file := filepath.Join(r.home, ".config", "agent.json")
			content(t, r.prompt("[[RUN "+tt.leave+"]]"))
			out := r.prompt("again")
			if tt.want != "" {
				mustFault(t, out, tt.want, ".config")
				return
			}
			if got := testenv.ReadFile(t, file); out.Output == nil || got != fmt.Sprintf(`{"home":%q}`, r.home) {
				t.Errorf("got %s, %+v", got, out)
			}
			if _, err := os.Lstat(filepath.Join(r.dir, "outside")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the link was followed: %v", err)
			}
		})
	}
}

// Once more where the agent sees nothing but what it was given.
func TestFaultsInBwrap(t *testing.T) {
	for name, tt := range map[string]struct {
		fault, prompt string
		want          fault.Category
	}{
		"none":       {"garbage;orphan", "[[RUN pwd]]", ""},
		"dies":       {"die:session/prompt", "", fault.Exit},
		"is deaf":    {"ignore-eof;ignore-term", "[[FAULT hang:prompt]]", fault.Timeout},
		"never ends": {"ignore-eof;ignore-term", "[[SAY hi]]", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRollout(t)
			r.inBwrap()
			r.setenv("ACP_AGENT_FAULT", tt.fault)
			seg := r.segment(tt.prompt)
			if tt.want == fault.Timeout {
				seg.Timeout, r.bounds.cancel = 2*time.Second, 200*time.Millisecond
			}
			switch out := r.run(seg); tt.want {
			case "":
				if content(t, out) == "" || out.Info.Isolation != sandbox.IsolationBwrap {
					t.Errorf("got %+v", out)
				}
			case fault.Timeout:
				mustLimit(t, out, tt.want)
			default:
				mustFault(t, out, tt.want, "exit status 7")
			}
		})
	}
}

// T28: how long an agent may take until its session is open is a setting.
func TestTheHandshakeTimeoutOfAnEntry(t *testing.T) {
	r := newRollout(t)
	SettingsOf(r.entry).HandshakeTimeout = wait.Duration(300 * time.Millisecond)
	r.bounds = newACPAgent(r.entry, r.opts).bounds
	r.setenv("ACP_AGENT_FAULT", "hang:session/new")
	mustFault(t, r.prompt(""), fault.Handshake, "the agent did not open its session within 300ms (handshakeTimeout)")
}
