package probe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/agent/acpagent"
	"github.com/evalrun/evalrun/internal/peers/fakemcp"
	"github.com/evalrun/evalrun/internal/peers/fakemodel"
	"github.com/evalrun/evalrun/internal/sandbox"
	"github.com/evalrun/evalrun/internal/testenv"
)

func TestMain(m *testing.M) {
	sandbox.InitMain()
	if len(os.Args) > 1 && os.Args[1] == StdioCommand {
		if err := fakemcp.StdioMain(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	testenv.Parallel(8)
	code := m.Run()
	testenv.RemoveAgent()
	os.Exit(code)
}

// options are those for the fixture with flags, and with a fault.
func options(t *testing.T, fault string, flags ...string) Options {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(t.TempDir(), "acp-agent") // by its path its processes are known
	if err := os.Link(testenv.BuiltAgent(t), own); err != nil {
		t.Fatal(err)
	}
	return Options{
		Entry:     agent.Entry{Name: "fixture", Type: acpagent.Name, Command: append([]string{own}, flags...), Env: map[string]string{"ACP_AGENT_FAULT": fault}, Settings: &acpagent.Settings{}},
		BaseDir:   t.TempDir(),
		Isolation: sandbox.IsolationProcess, Executable: program, Version: "test", Timeout: 30 * time.Second,
	}
}

// verdicts are all verdicts of a report, those of facts behind the name of their check.
func verdicts(r *Report) map[string]string {
	out := map[string]string{}
	for _, c := range r.Checks {
		out[c.Name] = c.Verdict
		for _, f := range c.Facts {
			out[c.Name+": "+f.Name] = f.Verdict
		}
	}
	return out
}

// nothingLeft makes sure that no process of the agent is left.
func nothingLeft(t *testing.T, o Options) {
	t.Helper()
	programs, _ := filepath.Glob("/proc/[0-9]*/exe") // none on other systems
	for _, p := range programs {
		if target, err := os.Readlink(p); err == nil && strings.HasPrefix(target, o.Entry.Command[0]) {
			t.Errorf("%s is left", p)
		}
	}
}

// orphaned is the verdict of a shell child that outlives its agent.
func orphaned(isolation string) (check, fact string) {
	switch {
	case isolation == sandbox.IsolationBwrap:
		return "none", "none"
	case runtime.GOOS != "linux":
		return "orphans", "1 left"
	}
	return "orphans", "2 left" // the shell and its sleep
}

// The fixture keeps to the protocol, and has no model: what is seen at the model cannot be known
// it.
func TestAWellBehavedAgent(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	for _, isolation := range []string{sandbox.IsolationProcess, sandbox.IsolationBwrap} {
		t.Run(isolation, func(t *testing.T) {
			t.Parallel()
			testenv.Need(t, testenv.Bwrap, sandbox.Supported(isolation))
			o := options(t, "")
			o.Isolation = isolation
			r, err := Run(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			orphans, left := orphaned(isolation)
			want := map[string]string{
				"initialize": Yes, "initialize: answered": Yes, "initialize: session/load": Yes, "initialize: session/resume": Yes, "initialize: session/close": Yes,
				"initialize: MCP over http": Yes, "initialize: MCP over sse": Yes, "initialize: authentication": "1",
				"slow-server": "session/new waits", "slow-server: session/new waits": Yes, "slow-server: tools in the first request": NA,
				"dead-server": "goes on silently", "dead-server: session opened": Yes, "dead-server: prompt returns": "end_turn", "dead-server: the agent says so": No,
				"cancel-tool": Yes, "cancel-tool: prompt returns": "cancelled", "cancel-tool: server told": Yes, "cancel-tool: tool call closed": Yes,
				"cancel-model": Yes, "cancel-model: prompt returns": "cancelled", "cancel-model: model request aborted": NA,
				"resume": Yes, "resume: advertised": Yes, "resume: session/resume": Yes, "resume: history replayed": No, "resume: history complete": NA,
				"resume: new server used": Yes, "resume: old server left alone": Yes, "resume: permission asked": No, "resume: calls repeated": No,
				"load": Yes, "load: advertised": Yes, "load: session/load": Yes, "load: history replayed": "before the answer", "load: history complete": NA,
				"load: new server used": Yes, "load: old server left alone": Yes, "load: permission asked": No, "load: calls repeated": No,
				"sessions": Yes, "sessions: session/list": Yes, "sessions: session/fork": Yes, "sessions: session/delete": Yes, // A27
				"exit": Yes, "exit: on end of stdin": Yes, "exit: on SIGTERM": Yes,
				"orphans": orphans, "orphans: after SIGTERM": left, "orphans: after SIGKILL": left,
			}
			for _, transport := range []string{"stdio", "http", "sse"} {
				for fact, verdict := range map[string]string{
					"": Yes, ": advertised": Yes, ": session opened": Yes, ": token sent": Yes, ": tool seen by the model": NA, ": permission asked": No,
					": call arrived": Yes, ": result shown to the model": NA, ": usage told": Yes,
				} {
					want[transport+fact] = verdict
				}
			}
			delete(want, "stdio: token sent")
			if diff := cmp.Diff(want, verdicts(r)); diff != "" {
				t.Error(diff)
			}
			if r.Agent.Name != "acp-agent" || r.Agent.Version != "1.0.0" || r.Isolation != isolation || !bytes.Contains(r.Agent.Initialize, []byte("agentInfo")) {
				t.Errorf("got %+v", r.Agent)
			}
			var table strings.Builder
			if err := r.WriteTable(&table); err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{"\nCHECK ", "\nhttp ", "\n  call arrived ", "\n  history replayed            before the answer"} {
				if !strings.Contains(table.String(), want) {
					t.Errorf("the table lacks %q:\n%s", want, &table)
				}
			}
			nothingLeft(t, o)
		})
	}
}

// What an agent does not do, or does wrong, is seen.
func TestOtherAgents(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	for _, c := range []struct {
		name, fault string
		flags, only []string
		want        map[string]string
	}{
		{"takes little", "", []string{"-no-load", "-no-resume", "-no-http", "-no-sse", "-ask"}, []string{"stdio", "http", "sse", "slow-server", "dead-server", "cancel-tool", "resume", "load"}, map[string]string{
			"initialize: session/load": No, "initialize: session/resume": No, "initialize: MCP over http": No, "initialize: MCP over sse": No,
			"stdio": Yes, "stdio: permission asked": Yes, "http": No, "http: advertised": No, "sse": No, "sse: advertised": No, "slow-server": NA, "dead-server": NA,
			"cancel-tool": Yes, "cancel-tool: server told": Yes, "resume": No, "resume: advertised": No, "load": No, "load: advertised": No,
		}},
		{"manages no sessions", "", []string{"-no-manage"}, []string{"sessions"}, map[string]string{
			"sessions": No, "sessions: session/list": "not advertised", "sessions: session/fork": "not advertised", "sessions: session/delete": "not advertised",
		}},
		{"lists no sessions", `answer:session/list={"sessions":[],"nextCursor":"more"}`, nil, []string{"sessions"}, map[string]string{
			"sessions": "incomplete", "sessions: session/list": No, "sessions: session/fork": Yes,
		}},
		{"refuses to delete", "error:session/delete=-32603", nil, []string{"sessions"}, map[string]string{"sessions": "incomplete", "sessions: session/list": Yes, "sessions: session/delete": No}},
		{"no http", "", []string{"-no-http"}, []string{"slow-server", "resume"}, map[string]string{"slow-server": "session/new waits", "resume": Yes, "resume: old server left alone": Yes}},
		{"ends with a signal only", "ignore-eof", nil, []string{"exit"}, map[string]string{"exit": No, "exit: on end of stdin": No, "exit: on SIGTERM": Yes}},
		{"ends with no signal", "ignore-eof;ignore-term", nil, []string{"exit"}, map[string]string{"exit": No, "exit: on end of stdin": No, "exit: on SIGTERM": No}},
		{"refuses to load", "error:-32603", nil, []string{"dead-server"}, map[string]string{"dead-server": Failed}},
		{"says end_turn for cancelled", `answer:session/prompt={"stopReason":"end_turn"}`, nil, []string{"cancel-tool"}, map[string]string{"cancel-tool": No, "cancel-tool: prompt returns": "end_turn"}},
		{"opens no session", "noresult:session/new", nil, []string{"http", "exit"}, map[string]string{"http": Failed, "exit": Failed}},
		{"forgets", "noresult:session/load", nil, []string{"load", "resume"}, map[string]string{"load": Failed, "resume": Yes}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := options(t, c.fault, c.flags...)
			o.Only = c.only
			var done []string
			o.Done = func(c Check) { done = append(done, c.Name) }
			r, err := Run(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			got := verdicts(r)
			for name, want := range c.want {
				if got[name] != want {
					t.Errorf("%s: got %q, want %q", name, got[name], want)
				}
			}
			if len(done) != len(c.only)+1 || len(r.Checks) != len(done) || done[0] != "initialize" {
				t.Errorf("done: %v", done)
			}
			for _, check := range r.Checks {
				if (check.Verdict == Failed || check.Verdict == No) && check.Detail == "" {
					t.Errorf("%s is %s, and nobody knows why", check.Name, check.Verdict)
				}
			}
			nothingLeft(t, o)
		})
	}
}

// A check that hangs is ended, and the others are made.
func TestACheckThatHangs(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	o := options(t, "hang:new")
	o.Timeout, o.Only = 5*time.Second, []string{"http", "resume"} // in which an agent has to start
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range r.Checks[1:] {
		if c.Verdict != Failed || !strings.Contains(c.Detail, "session/new") || !strings.Contains(c.Detail, "not done within 5s") {
			t.Errorf("got %+v", c)
		}
	}
	if len(r.Checks) != 3 {
		t.Errorf("%d checks", len(r.Checks))
	}
	nothingLeft(t, o)
}

func TestAgentsThatCannotBeProbed(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	for fault, want := range map[string]string{"die:initialize": "stdout", "hang:initialize": "not done within", `answer:initialize={"protocolVersion":7}`: "protocol version 7"} {
		o := options(t, fault)
		if fault == "hang:initialize" {
			o.Timeout = 500 * time.Millisecond
		}
		r, err := Run(t.Context(), o)
		var start *StartError
		if !errors.As(err, &start) || !strings.Contains(err.Error(), want) || len(r.Checks) != 0 {
			t.Errorf("%s: got %v", fault, err)
		}
	}
	o := options(t, "")
	fixture := o
	o.Entry.Command = []string{"/nowhere/agent"}
	var start *StartError
	if _, err := Run(t.Context(), o); !errors.As(err, &start) || !strings.Contains(err.Error(), "/nowhere/agent") {
		t.Errorf("got %v", err)
	}
	o.Entry.Command = []string{"/bin/sh", "-c", "echo no licence >&2"}
	if _, err := Run(t.Context(), o); !errors.As(err, &start) || !strings.Contains(err.Error(), "no licence") {
		t.Errorf("got %v", err)
	}
	o.Only = []string{"htpp"}
	if _, err := Run(t.Context(), o); err == nil || errors.As(err, &start) {
		t.Errorf("got %v", err)
	}
	nothingLeft(t, fixture)
}

// An interruption ends everything in the middle of a check.
func TestInterrupted(t *testing.T) {
	testenv.NeedSlow(t)
	stop := errors.New("stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	o := options(t, "hang:new")
	o.Done = func(Check) { // initialize is done; the next one hangs
		time.AfterFunc(50*time.Millisecond, func() { cancel(stop) })
	}
	if r, err := Run(ctx, o); !errors.Is(err, stop) || len(r.Checks) != 1 {
		t.Errorf("got %v, %+v", err, r)
	}
	nothingLeft(t, o)
}

// What the model is shown is judged by the requests of the agent's loop: the one for a title is
// none.
func TestWhatTheModelIsShown(t *testing.T) {
	m, err := fakemodel.Start(fakemodel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	turn := &turn{a: &process{r: &rig{model: m}}, word: "WORD"}
	var c Check
	judge := func(shows ...string) {
		c = Check{}
		c.addSeen(turn, &server{tool: "probe_http"})
		c.addShown(turn, "MARKER")
		c.addHistory(turn, []fragment{{"the codeword", said("petunia")}, {"the call", called("probe_http")}, {"its result", func(r fakemodel.Request) bool { return holdsResult(r, "MARKER") }}})
		var got []string
		for _, f := range c.Facts {
			got = append(got, f.Verdict)
		}
		if fmt.Sprint(got) != fmt.Sprint(shows) {
			t.Errorf("got %v, want %v: %+v", got, shows, c.Facts)
		}
	}
	const history = `{"role":"user","content":"petunia"},{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"x_probe_http","arguments":"{}"}}]},` +
		`{"role":"tool","tool_call_id":"1","content":"MARKER"}`
	ask := func(messages, tools string) {
		body := fmt.Sprintf(`{"model":"m","messages":[%s],"tools":[%s]}`, messages, tools)
		resp, err := http.Post(m.URL()+"/chat/completions", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	const word, tool, other = `{"role":"user","content":"a WORD"}`, `{"type":"function","function":{"name":"x_probe_http"}}`, `{"type":"function","function":{"name":"bash"}}`
	ask(history, tool) // another turn's
	judge(NA, NA, NA)
	ask(word, "") // for a title
	judge(No, No, No)
	ask(`{"role":"user","content":"petunia"},`+word, other)
	judge(No, No, No)
	if d := c.Facts[2].Detail; d != "the model is not shown the call, its result" {
		t.Errorf("got %s", d)
	}
	ask(history+","+word, tool) // the first request of a turn says what the history is, the last one what became of the calls
	judge(No, Yes, No)

	turn.word = "SECOND"
	ask(history+`,{"role":"user","content":"a SECOND"}`, tool)
	judge(Yes, Yes, Yes)
}
