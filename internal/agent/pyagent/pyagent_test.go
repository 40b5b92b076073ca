package pyagent_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/agent"
	_ "github.com/evalrun/evalrun/internal/agent/types"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/testenv"
)

// project is an agent in a folder, and segments of its rollouts.
type project struct {
	t     *testing.T
	dir   string
	agent agent.Agent
}

// open makes an agent of an entry, which is JSON, in a folder.
func open(t *testing.T, dir, entry string, opts agent.Options) *project {
	t.Helper()
	n, err := input.Parse("agent.json", []byte(entry))
	if err != nil {
		t.Fatal(err)
	}
	r := &input.Reader{}
	e := agent.ParseEntry(r, n)
	if err := r.Problems.Err(true); err != nil {
		t.Fatal(err)
	}
	a, err := e.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	p := &project{t, dir, a}
	t.Cleanup(p.close)
	return p
}

func (p *project) close() {
	if err := p.agent.Close(); err != nil {
		p.t.Error(err)
	}
}

// segment is a first segment with a workspace of its own.
func (p *project) segment(given string) agent.Segment {
	dir := p.t.TempDir()
	return agent.Segment{RolloutID: "7d1f2f8a-0000-5000-8000-000000000001", Marker: dir, Number: 1, Attempt: 1,
		Input: json.RawMessage(given), Workspace: testenv.Mkdir(p.t, dir, "workspace"), Dir: testenv.Mkdir(p.t, dir, "segment"), BaseDir: p.dir}
}

// resumed is the next segment of the same rollout.
func (p *project) resumed(seg agent.Segment, answers string) agent.Segment {
	p.t.Helper()
	seg.Resume = nil
	if err := json.Unmarshal([]byte(answers), &seg.Resume); err != nil {
		p.t.Fatal(err)
	}
	seg.Number, seg.Dir, seg.Deliveries = seg.Number+1, p.t.TempDir(), map[string]agent.Delivery{}
	for id, payload := range seg.Resume {
		seg.Deliveries[id] = agent.Delivery{Status: "successful", Payload: payload}
	}
	return seg
}

// said is an outcome with what the segment left on stderr.
type said struct {
	agent.Outcome
	stderr string
}

func (p *project) run(seg agent.Segment) said { return p.runWith(p.t.Context(), seg) }

func (p *project) runWith(ctx context.Context, seg agent.Segment) said {
	p.t.Helper()
	out, err := p.agent.Run(ctx, seg)
	if err != nil {
		p.t.Fatal(err)
	}
	s := said{Outcome: out}
	if slices.Contains(out.Files, "stderr.log") {
		s.stderr = testenv.ReadFile(p.t, seg.Dir, "stderr.log")
	}
	return s
}

func (p *project) do(what string) said { return p.run(p.segment(`{"do": "` + what + `"}`)) }

func (s said) wants(t *testing.T, output string) {
	t.Helper()
	if string(s.Output) != output {
		t.Errorf("got %s, %+v, %+v, want %s", s.Output, s.Interrupts, s.Fault, output)
	}
}

func (s said) faults(t *testing.T, category fault.Category, says string) {
	t.Helper()
	if s.Fault == nil || s.Fault.Category != category || !strings.Contains(s.Fault.Message, says) {
		t.Errorf("got %s, %+v, want %s with %q", s.Output, s.Fault, category, says)
	}
}

// vectors opens a function of testdata/vectors.py.
func vectors(t *testing.T, entrypoint, more string) *project {
	testenv.NeedPython(t)
	return open(t, "testdata", `{"type": "python", "entrypoint": "`+entrypoint+`"`+more+`}`, agent.Options{})
}

// The vectors of what an agent may do to its worker: what is to stay alive is the same process
// before and after.
func TestWhatAnAgentMayDoToItsWorker(t *testing.T) {
	p := vectors(t, "vectors.py:main", "")
	first := p.do("prints")
	first.wants(t, `{"output":"unharmed"}`)
	for _, line := range []string{"printed at the import\n", "by print\n", "by write\n", "by C\n", "by a child\n"} {
		if !strings.Contains(first.stderr, line) {
			t.Errorf("stderr lacks %q: %q", line, first.stderr)
		}
	}
	before := p.do("count")
	for _, v := range []struct {
		do, output string
		category   fault.Category
		says       string
	}{
		{do: "stdin", output: `""`},
		{do: "exit", category: fault.Exit, says: "the agent ended itself: SystemExit: 3"},
		{do: "raise", category: fault.AgentError, says: "the agent raised ValueError: bad thing; stderr ends with:\nTraceback"},
		{do: "recurse", category: fault.AgentError, says: "RecursionError"},
		{do: "nan", category: fault.InvalidOutput, says: "nan, which is not a JSON value"},
		{do: "function", category: fault.InvalidOutput, says: "a function, which cannot be written as JSON"},
		{do: "class", category: fault.InvalidOutput, says: "the class int"},
		{do: "key", category: fault.InvalidOutput, says: "the key (1, 2)"},
		{do: "set", output: `[1]`},
		{do: "circle", category: fault.TooDeep, says: "or in itself"},
		{do: "surrogate", output: `"\ud800"`},
		{do: "run", output: `"run"`},
		{do: "fork", output: `"the parent's"`},
		{do: "pool", output: `[4,9]`},
		{do: "interrupt", category: fault.AgentError, says: "KeyboardInterrupt"},
		{do: "generator", output: `[1,2]`},
		{do: "async generator", output: `[1,2]`},
		{do: "connection", output: `"hello"`},
		{do: "connection", output: `"hello"`},
		{do: "changes", output: `[false,false,true,"trace.jsonl"]`},
		{do: "changes", output: `[false,false,true,"trace.jsonl"]`},
	} {
		t.Run(v.do, func(t *testing.T) {
			out := p.do(v.do)
			if v.category != "" {
				out.faults(t, v.category, v.says)
				return
			}
			out.wants(t, v.output)
		})
	}
	out := p.do("suspend")
	if len(out.Interrupts) != 1 || out.Interrupts[0].ID != "i1" {
		t.Errorf("got %+v", out)
	}
	p.run(p.resumed(p.segment(`{"do": "count"}`), `{"i1": 1}`)).faults(t, fault.Unresumable, "no parameter 'evalrun'")
	if after := p.do("count"); counted(t, after) != [2]int{2, counted(t, before)[1]} {
		t.Errorf("the worker was replaced: %s after %s; %+v", after.Output, before.Output, after.Fault)
	}
}

// counted is what count returns: how often it was called in this process, and the process.
func counted(t *testing.T, s said) (out [2]int) {
	t.Helper()
	if err := json.Unmarshal(s.Output, &out); err != nil {
		t.Fatalf("%s, %+v: %v", s.Output, s.Fault, err)
	}
	return out
}

// An agent that ends its worker harms its own segment alone.
func TestAnAgentThatEndsItsWorker(t *testing.T) {
	p := vectors(t, "vectors.py:main", "")
	before := counted(t, p.do("count"))[1]
	for _, v := range []struct {
		do       string
		category fault.Category
		says     string
	}{
		{"os._exit", fault.Exit, "exit status 4"},
		{"segfault", fault.Exit, "signal: segmentation fault"},
		{"close", fault.Exit, "the agent's worker ended with"},
		{"big", fault.OutputLimit, "more than 1000 bytes"},
		{"hang", fault.Timeout, "the segment took longer than 1ms"},
	} {
		seg := p.segment(`{"do": "` + v.do + `"}`)
		seg.OutputBytes = 1000
		if v.do == "hang" {
			seg.Timeout = time.Millisecond
		}
		p.run(seg).faults(t, v.category, v.says)
		after := counted(t, p.do("count"))
		// A segment whose time is over before it has a worker ends none.
		if v.do != "hang" && (after[0] != 1 || after[1] == before) {
			t.Errorf("after %s: the worker was not replaced: %v", v.do, after)
		}
		before = after[1]
	}

	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("SIGINT"))
	p.runWith(ctx, p.segment(`{"do": "hang"}`)).faults(t, fault.Interrupted, "SIGINT")
}

func TestAFreshAgentSharesNothing(t *testing.T) {
	p := vectors(t, "vectors.py:main", `, "keep": false`)
	for range 2 {
		if got := counted(t, p.do("count"))[0]; got != 1 {
			t.Errorf("got %d", got)
		}
	}
	p.do("thread").wants(t, `"left"`) // and the process ends all the same
}

func TestHowAFunctionIsCalled(t *testing.T) {
	for _, v := range []struct{ entrypoint, input, output, says string }{
		{"vectors.py:two", `{"a": 1}`, `6`, ""},
		{"vectors.py:two", `{"a": 1, "c": 2}`, "", "TypeError"},
		{"vectors:typed", `{"p": {"x": 1}, "unknown": 1}`, `{"p":{"x":1,"y":2},"name":null}`, ""},
		{"vectors:typed", `{"p": {}}`, "", "the input does not fit the parameter 'given'"},
		{"vectors.py:bot", `1`, `["called",1]`, ""},
		{"vectors.py:Bot.method", `1`, `["method",1]`, ""},
	} {
		p := vectors(t, v.entrypoint, "")
		out := p.run(p.segment(v.input))
		if v.says != "" {
			out.faults(t, fault.AgentError, v.says)
		} else {
			out.wants(t, v.output)
		}
	}
	p := vectors(t, "vectors.py:resumable", "")
	seg := p.segment(`{}`)
	if out := p.run(seg); len(out.Interrupts) != 1 {
		t.Errorf("got %+v", out)
	}
	p.run(p.resumed(seg, `{"i1": "Ada"}`)).wants(t, `{"got":"Ada","status":"successful"}`)
}

// What cannot be loaded is said once, with what to do; no segment starts it again.
func TestAnAgentThatCannotBeLoaded(t *testing.T) {
	testenv.NeedPython(t)
	for name, v := range map[string]struct {
		files map[string]string
		says  string
	}{
		"no such function": {map[string]string{"agent.py": "def other(): pass"}, "agent.py has no 'main'; it has other"},
		"a wrong line":     {map[string]string{"agent.py": "def main(:"}, "SyntaxError"},
		"raises":           {map[string]string{"agent.py": "print('hint'); raise KeyError('TOKEN')"}, "KeyError: 'TOKEN'; stderr ends with:\nhint"},
		"asks on stdin":    {map[string]string{"agent.py": "input('key? ')"}, "it reads stdin, which is empty"},
		"with uv":          {map[string]string{"agent.py": "import no_such_package", "uv.lock": ""}, "No module named 'no_such_package'; install the project's packages: uv sync (in "},
		"with poetry":      {map[string]string{"agent.py": "import no_such_package", "poetry.lock": ""}, "poetry install"},
		"with a list":      {map[string]string{"agent.py": "import no_such_package", "requirements.txt": ""}, "-m pip install -r requirements.txt"},
		"with nothing":     {map[string]string{"agent.py": "import no_such_package"}, `name another interpreter with the key "python"`},
		"not a function":   {map[string]string{"agent.py": "main = 1"}, "agent.py:main is an int, which cannot be called"},
		"ends":             {map[string]string{"agent.py": "import os; os._exit(9)"}, "ended before it was ready: exit status 9"},
		"no file":          {nil, "there is no file agent.py"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range v.files {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			// A name in PATH, so that the tools of lock files are not asked.
			p := open(t, dir, `{"type": "python", "entrypoint": "agent.py:main", "python": "python3"}`, agent.Options{})
			p.run(p.segment(`{}`)).faults(t, fault.Start, v.says)
		})
	}
}

func TestAnImportThatHangsIsEndedByTheTimeout(t *testing.T) {
	testenv.NeedPython(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "agent.py"), []byte("import threading; threading.Event().wait()\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := open(t, dir, `{"type": "python", "entrypoint": "agent.py:main", "timeout": "1s"}`, agent.Options{})
	p.run(p.segment(`{}`)).faults(t, fault.Timeout, "longer than 1s")
}

// hiding stands for a redaction.
type hiding struct{ w io.Writer }

func (h hiding) Write(p []byte) (int, error) {
	_, err := io.WriteString(h.w, strings.ReplaceAll(string(p), "bad thing", "[redacted]"))
	return len(p), err
}

func (h hiding) Close() error { return nil }

func TestSecretsOfAWorkerAreRedacted(t *testing.T) {
	testenv.NeedPython(t)
	p := open(t, "testdata", `{"type": "python", "entrypoint": "vectors.py:main"}`, agent.Options{Redact: func(w io.Writer) io.WriteCloser { return hiding{w} }})
	out := p.do("raise")
	out.faults(t, fault.AgentError, "ValueError: [redacted]")
	if !strings.Contains(out.stderr, "[redacted]") || strings.Contains(out.stderr+out.Fault.Message, "bad thing") {
		t.Errorf("got %q, %q", out.stderr, out.Fault.Message)
	}
}
