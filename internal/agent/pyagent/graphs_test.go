package pyagent_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/eval/spans"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/testenv"
)

// earlier is an interpreter with an earlier version of LangGraph, while TestEarlierLangGraph runs.
var earlier string

// langgraph is the interpreter of fixtures/langgraph.
func langgraph(t *testing.T) string {
	t.Helper()
	if earlier != "" {
		return earlier
	}
	python, err := filepath.Abs("../../../fixtures/langgraph/.venv/bin/python")
	if err == nil {
		_, err = os.Stat(python)
	}
	if err != nil {
		testenv.Need(t, testenv.LangGraph, fmt.Errorf("there is no virtual environment, see fixtures/langgraph/README.md: %w", err))
	}
	return python
}

// The graphs of earlier generations suspend and go on as those of today do, each in its own way below.
func TestEarlierLangGraph(t *testing.T) {
	for _, version := range []string{"0.2", "0.4"} {
		t.Run(version, func(t *testing.T) {
			python, err := filepath.Abs("testdata/.venv-" + version + "/bin/python")
			if err == nil {
				_, err = os.Stat(python)
			}
			if err != nil {
				testenv.Need(t, testenv.Frameworks, fmt.Errorf("there is no virtual environment; .ci/run frameworks makes it: %w", err))
			}
			earlier = python
			defer func() { earlier = "" }()
			t.Run("resumed", TestAGraphIsResumedByAnotherWorker)
			t.Run("twice", TestTwoInterruptsInOneNode)
			t.Run("breakpoint", TestABreakpointOfAGraph)
			t.Run("dies", TestAGraphWhoseWorkerDies)
			t.Run("tools", TestWhatAGraphOfMessagesLeaves)
			if version != "0.2" {
				t.Run("parallel", TestParallelInterruptsAreAnsweredOneByOne)
				return
			}
			p := graphOf(t, "parallel")
			seg := p.segment(`{"log": []}`)
			ids := p.run(seg).waits(t)
			p.run(p.resumed(seg, answer(ids["a"], "1"))).faults(t, fault.Unresumable, "cannot resume one of several interrupts")
		})
	}
}

// graphOf opens a graph of testdata/graphs.
func graphOf(t *testing.T, name string) *project {
	return open(t, "testdata/graphs", `{"type": "langgraph", "entrypoint": "`+name+`", "python": "`+langgraph(t)+`"}`, agent.Options{})
}

// waits returns the ids of the interrupts, by what they ask.
func (s said) waits(t *testing.T) map[string]string {
	t.Helper()
	ids := map[string]string{}
	for _, i := range s.Interrupts {
		var value map[string]string
		if err := json.Unmarshal(i.Specs[0].Payload, &value); err != nil {
			t.Fatal(err)
		}
		for _, what := range value {
			ids[what] = i.ID
		}
	}
	if len(ids) == 0 {
		t.Fatalf("it does not wait: %s, %+v", s.Output, s.Fault)
	}
	return ids
}

func answer(id, value string) string { return fmt.Sprintf(`{%q: %s}`, id, value) }

// Given a graph without a checkpointer, or with one of its own, in every form that langgraph.json
// may name, when its worker is gone, then another goes on with it.
func TestAGraphIsResumedByAnotherWorker(t *testing.T) {
	names := []string{"single", "builder", "factory", "context", "own"}
	if earlier != "" {
		names = []string{"single", "own"} // the rest is ours and not LangGraph's
	}
	for _, name := range names {
		first := graphOf(t, name)
		second := first
		if name == "single" { // one is enough to show it
			second = graphOf(t, name)
		}
		seg := first.segment(`{"log": []}`)
		out := first.run(seg)
		id := out.waits(t)["one"]
		if !strings.Contains(out.stderr, "'store' of langgraph.json is for LangGraph's server") || !strings.Contains(out.stderr, "wants Python 2.7") {
			t.Errorf("%s: stderr is %q", name, out.stderr)
		}
		if second != first {
			first.close()
		}
		second.run(second.resumed(seg, answer(id, `"Ada"`))).wants(t, `{"log":["one:Ada"]}`)
	}
}

func TestParallelInterruptsAreAnsweredOneByOne(t *testing.T) {
	p := graphOf(t, "parallel")
	seg := p.segment(`{"log": []}`)
	ids := p.run(seg).waits(t)
	seg = p.resumed(seg, answer(ids["a"], "null"))
	if left := p.run(seg).waits(t); len(left) != 1 || left["b"] != ids["b"] {
		t.Errorf("got %v of %v", left, ids)
	}
	p.run(p.resumed(seg, answer(ids["b"], "{}"))).wants(t, `{"log":["a:None","b:{}"]}`)
}

func TestTwoInterruptsInOneNode(t *testing.T) {
	p := graphOf(t, "twice")
	seg := p.segment(`{"log": []}`)
	for _, what := range []string{"first", "second"} {
		id := p.run(seg).waits(t)[what]
		seg = p.resumed(seg, answer(id, `"`+what+`"`))
	}
	p.run(seg).wants(t, `{"log":["first+second"]}`)
}

func TestABreakpointOfAGraph(t *testing.T) {
	p := graphOf(t, "breakpoint")
	seg := p.segment(`{"log": []}`)
	if id := p.run(seg).waits(t)["n"]; id != "breakpoint:n" {
		t.Errorf("got %q", id)
	}
	p.run(p.resumed(seg, `{"breakpoint:n": true}`)).wants(t, `{"log":["ran"]}`)
}

// LangGraph goes on with all nodes of a breakpoint. An answer for one of them is not to run the others,
// so that there is one question for all.
func TestABreakpointOfSeveralNodes(t *testing.T) {
	p := graphOf(t, "breakpoints")
	seg := p.segment(`{"log": []}`)
	if waits := p.run(seg).waits(t); len(waits) != 1 || waits["a,b"] != "breakpoint:a,b" {
		t.Errorf("got %v", waits)
	}
	p.run(p.resumed(seg, `{"breakpoint:a,b": true}`)).wants(t, `{"log":["a","b"]}`)
}

// A worker that dies after the answer has lost nothing: the segment is run again with the same one.
func TestAGraphWhoseWorkerDies(t *testing.T) {
	p := graphOf(t, "crashing")
	seg := p.segment(`{"log": []}`)
	next := p.resumed(seg, answer(p.run(seg).waits(t)["one"], `"yes"`))
	if err := os.WriteFile(filepath.Join(seg.Workspace, "crash"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p.run(next).faults(t, fault.Exit, "exit status 1")
	p.run(next).wants(t, `{"log":["one:yes","mid","end","project"]}`)
}

func TestAGraphThatCannotGoOn(t *testing.T) {
	p := graphOf(t, "single")
	seg := p.segment(`{"log": []}`)
	id := p.run(seg).waits(t)["one"]
	p.run(p.resumed(seg, `{"unknown": 1}`)).faults(t, fault.Unresumable, "the graph does not wait for unknown; it waits for "+id)
	p.run(p.resumed(p.segment(`{}`), answer(id, "1"))).faults(t, fault.Unresumable, "there is no checkpoint of the graph in the workspace")

	// A checkpoint is data: one that names a function is not read.
	file := filepath.Join(seg.Workspace, "langgraph.pickle")
	if err := os.WriteFile(file, []byte("cos\nsystem\n(S'touch here'\ntR."), 0o600); err != nil {
		t.Fatal(err)
	}
	p.run(p.resumed(seg, answer(id, "1"))).faults(t, fault.Unresumable, "it names os.system")
}

func TestAGraphThatCannotBeLoaded(t *testing.T) {
	for name, says := range map[string]string{
		"node":    "is one of Node (./agent.ts:graph)",
		"number":  "./graphs.py:number is an int, which is no graph",
		"unknown": "langgraph.json has no graph 'unknown'; it has breakpoint, ",
	} {
		p := graphOf(t, name)
		p.run(p.segment(`{}`)).faults(t, fault.Start, says)
	}
}

// Messages are the output, with the text of the last answer; a tool that was called again after the
// suspension counts once.
func TestWhatAGraphOfMessagesLeaves(t *testing.T) {
	p := graphOf(t, "tools")
	seg := p.segment(`"Pay and tell me the weather"`)
	next := p.resumed(seg, answer(p.run(seg).waits(t)["pay"], "true"))
	out := p.run(next)
	var doc struct {
		Result   string
		Messages []struct{ Type string }
	}
	if err := json.Unmarshal(out.Output, &doc); err != nil {
		t.Fatalf("%s, %+v", out.Output, out.Fault)
	}
	var kinds []string
	for _, m := range doc.Messages {
		kinds = append(kinds, m.Type)
	}
	if doc.Result != "sunny in Oslo; paid 5" || !slices.Equal(kinds, []string{"human", "ai", "tool", "tool", "ai"}) {
		t.Errorf("got %q, %v", doc.Result, kinds)
	}
	var trace [][]json.RawMessage
	for _, dir := range []string{seg.Dir, next.Dir} {
		trace = append(trace, testenv.ReadLines[json.RawMessage](t, dir, "trace.jsonl"))
	}
	var called []string
	for _, call := range spans.ToolCalls(trace) {
		called = append(called, call.Name)
	}
	if len(trace[0]) != 1 || len(trace[1]) != 2 || !slices.Equal(called, []string{"weather", "pay"}) {
		t.Errorf("got %v of %s", called, trace)
	}
}
