package nodeagent_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/agent/nodeagent"
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

// needNode skips a test where there is no Node that reads TypeScript.
func needNode(t *testing.T) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "node", "-p", "process.features.typescript").CombinedOutput()
	if err == nil && strings.TrimSpace(string(out)) != "strip" {
		err = fmt.Errorf("process.features.typescript is %s", out)
	}
	if err != nil {
		testenv.Need(t, testenv.Frameworks, fmt.Errorf("there is no Node 22.18 or later in PATH: %w", err))
	}
}

// open makes an agent of an entry, which is JSON, in a folder.
func open(t *testing.T, dir, entry string) *project {
	t.Helper()
	needNode(t)
	n, err := input.Parse("agent.json", []byte(entry))
	if err != nil {
		t.Fatal(err)
	}
	r := &input.Reader{}
	e := agent.ParseEntry(r, n)
	if err := r.Problems.Err(true); err != nil {
		t.Fatal(err)
	}
	a, err := e.New(agent.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p := &project{t, dir, a}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func vectors(t *testing.T, name string) *project {
	return open(t, "testdata", `{"type": "node", "entrypoint": "vectors.mjs:`+name+`"}`)
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

func (p *project) run(seg agent.Segment) said {
	p.t.Helper()
	out, err := p.agent.Run(p.t.Context(), seg)
	if err != nil {
		p.t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(seg.Dir, "stderr.log"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		p.t.Fatal(err)
	}
	return said{out, string(text)}
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

// waits reports the ids of the interrupts of an outcome.
func (s said) waits() string {
	var ids []string
	for _, one := range s.Interrupts {
		ids = append(ids, one.ID)
	}
	return strings.Join(ids, " ")
}

// counted is what count returns: how often it was called in this process, and the process.
func counted(t *testing.T, s said) (out [2]int) {
	t.Helper()
	if err := json.Unmarshal(s.Output, &out); err != nil {
		t.Fatalf("%s, %+v: %v", s.Output, s.Fault, err)
	}
	return out
}

// What an agent may do to its worker, which is the same process before and after.
func TestWhatAnAgentInNodeMayDo(t *testing.T) {
	p := vectors(t, "main")
	first := p.do("prints")
	first.wants(t, `"unharmed"`)
	for _, line := range []string{"printed at the import\n", "by console\n", "by write\n", "by a child\n", strings.Repeat("x", 1000) + "\n"} {
		if !strings.Contains(first.stderr, line) {
			t.Errorf("stderr lacks %q: %.300q", line, first.stderr)
		}
	}
	before := counted(t, p.do("count"))
	for _, v := range []struct {
		do, output string
		category   fault.Category
		says       string
	}{
		{do: "stdin", output: `""`},
		{do: "error", category: fault.AgentError, says: "the agent raised TypeError: bad thing"},
		{do: "text", category: fault.AgentError, says: "the agent raised string: a text"},
		{do: "object", category: fault.AgentError, says: `the agent raised object: {"code":7}`},
		{do: "nothing", category: fault.AgentError, says: "the agent raised undefined: undefined"},
		{do: "circularError", category: fault.AgentError, says: "[object Object]"},
		{do: "recurse", category: fault.AgentError, says: "Maximum call stack"},
		{do: "nan", category: fault.InvalidOutput, says: "the output.deep[0] is NaN, which cannot be written as JSON"},
		{do: "bigint", category: fault.InvalidOutput, says: "the output.a[0].b is the BigInt 10"},
		{do: "circle", category: fault.TooDeep, says: "or in itself"},
		{do: "func", category: fault.InvalidOutput, says: "is a function"},
		{do: "symbol", category: fault.InvalidOutput, says: "the output[0] is a symbol"},
		{do: "undefined", output: `null`},
		{do: "values", output: `{"date":"1970-01-01T00:00:00.000Z","set":[1],"map":{"k":1},"bytes":"AQI=","point":{"x":1}}`},
		{do: "surrogate", output: `"\ud800"`},
		{do: "lines", output: "\"a\u2028b\\nc\""},
		{do: "generator", output: `[1,2]`},
		{do: "twice", output: `"first"`},
		{do: "never", category: fault.AgentError, says: "its promise will never settle"},
		{do: "changes", output: `[false,null,true]`},
		{do: "changes", output: `[false,null,true]`},
		{do: "patches", output: `"patched"`},
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
	if after := counted(t, p.do("count")); after != [2]int{2, before[1]} {
		t.Errorf("the worker was replaced: %v after %v", after, before)
	}
}

// An agent that ends its worker harms its own segment alone.
func TestAnAgentThatEndsItsNode(t *testing.T) {
	p := vectors(t, "main")
	before := counted(t, p.do("count"))[1]
	for _, v := range []struct {
		do       string
		category fault.Category
		says     string
	}{
		{"exit", fault.Exit, "the agent ended itself: process.exit: with the code 4"},
		{"kill", fault.Exit, "signal: killed"},
		{"rejects", fault.AgentError, "nobody catches it"},
		{"throwsLater", fault.AgentError, "the agent raised RangeError: in a timer"},
		{"close", fault.Exit, "the agent's worker ended with"},
		{"forges", fault.InvalidOutput, "it has the id of another request: x"},
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
}

// Given a function that asks two things at once and then a third, each answer is given to another
// process, and the function runs from its beginning with those that are there.
func TestAFunctionThatAsks(t *testing.T) {
	seg := vectors(t, "asks").segment(`{}`)
	another := func(seg agent.Segment) said { return vectors(t, "asks").run(seg) }
	out := another(seg)
	if out.waits() != "name age" {
		t.Fatalf("got %+v", out)
	}
	p := &project{t: t}
	seg = p.resumed(seg, `{"age": null}`)
	if out := another(seg); out.waits() != "name" {
		t.Fatalf("got %+v", out)
	}
	seg = p.resumed(seg, `{"name": "Ada"}`)
	if out := another(seg); out.waits() != "city" {
		t.Fatalf("got %+v", out)
	}
	last := p.resumed(seg, `{"city": "Turin"}`)
	done := another(last)
	done.wants(t, `{"name":"Ada","age":null,"city":"Turin","ran":4,"status":"successful"}`)
	trace := testenv.ReadFile(t, last.Dir, "trace.jsonl")
	for _, part := range []string{`"tool.name":"find","input.value":"{\"city\":\"Turin\"}"`, `"gen_ai.usage.input_tokens":10`} {
		if !strings.Contains(trace, part) {
			t.Errorf("%s is not in %s", part, trace)
		}
	}
	// The same request again, as after a crash, goes the same way.
	last.Dir = t.TempDir()
	another(last).wants(t, `{"name":"Ada","age":null,"city":"Turin","ran":5,"status":"successful"}`)

	seg.Workspace = t.TempDir()
	another(seg).faults(t, fault.Unresumable, "there is no state of the agent in the workspace")
	for _, name := range []string{"wrapped", "swallowed"} {
		p := vectors(t, name)
		if out := p.run(p.segment(`{}`)); out.waits() != "q" {
			t.Errorf("%s: got %+v", name, out)
		}
	}
	vectors(t, "failsToo").do("").faults(t, fault.AgentError, "something else")
}

func TestHowAnExportIsFound(t *testing.T) {
	for name, want := range map[string]string{"default": `["default","x"]`, "shelf.shout": `"X"`} {
		p := vectors(t, name)
		p.run(p.segment(`"x"`)).wants(t, want)
	}
	dir := t.TempDir()
	write(t, dir, "typed.ts", "interface In { text: string }\nexport const main = (given: In): string => given.text as string;\n")
	write(t, dir, "common.cjs", "module.exports.main = (given) => given.text;\n")
	for _, name := range []string{"typed.ts", "./common.cjs"} {
		p := open(t, dir, `{"type": "node", "entrypoint": "`+name+`:main"}`)
		p.run(p.segment(`{"text": "hi"}`)).wants(t, `"hi"`)
	}
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// What cannot be loaded is said, with what to do.
func TestAnAgentInNodeThatCannotBeLoaded(t *testing.T) {
	for name, v := range map[string]struct{ file, text, says string }{
		"no such export":  {"agent.mjs", "export const other = 1", `agent.mjs exports no "main"; it exports other`},
		"a wrong line":    {"agent.mjs", "export const main = (", "SyntaxError"},
		"throws":          {"agent.mjs", "console.log('hint'); throw new RangeError('TOKEN is missing')", "RangeError: TOKEN is missing"},
		"needs a package": {"agent.mjs", "import 'no-such-package'", "Cannot find package 'no-such-package'"},
		"what to install": {"agent.mjs", "import 'no-such-package'", "install the project's packages: npm install (in "},
		"no function":     {"agent.mjs", "export const main = 1", "is neither a function, nor a graph of LangGraph, nor an agent of the AI SDK"},
		"ends":            {"agent.mjs", "process.exit(9)", "ended before it was ready: exit status 9"},
		"no file":         {"other.mjs", "", "there is no file agent.mjs"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, v.file, v.text+"\n")
			p := open(t, dir, `{"type": "node", "entrypoint": "agent.mjs:main"}`)
			p.run(p.segment(`{}`)).faults(t, fault.Start, v.says)
		})
	}
}

// A program of one's own, which imports the package, is a function agent: kept, or started for each segment.
func TestAProgramThatServes(t *testing.T) {
	module, err := filepath.Abs("../../../sdk/typescript/evalrun.mjs")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write(t, dir, "agent.mjs", "import { serve } from "+string(must(json.Marshal(module)))+`;
let count = 0;
await serve(async (input, ctx) => {
  console.log("working");
  return [++count, input, await ctx.suspend("q", 1)];
});
`)
	for _, keep := range []string{"true", "false"} {
		p := open(t, dir, `{"type": "function", "command": ["node", "agent.mjs"], "keep": `+keep+`}`)
		seg := p.segment(`"x"`)
		if out := p.run(seg); out.waits() != "q" || !strings.Contains(out.stderr, "working\n") {
			t.Errorf("keep %s: got %+v", keep, out)
		}
		want := `[1,"x",true]`
		if keep == "true" {
			want = `[2,"x",true]`
		}
		p.run(p.resumed(seg, `{"q": true}`)).wants(t, want)
	}
}

func must(data []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return data
}

func TestAgentsOfAProject(t *testing.T) {
	dir := t.TempDir()
	testenv.Mkdir(t, dir, ".git")
	for name, v := range map[string]struct{ file, text, want string }{
		"package.json":      {"package.json", `{"evalrun": {"agent": "src/a.ts:main"}}`, "node main"},
		"of no use":         {"package.json", `{"evalrun": {"agent": "a.py:main"}}`, "expected \"agent\" to be FILE.ts:NAME"},
		"without a word":    {"package.json", `{"name": "x"}`, ""},
		"a graph":           {"langgraph.json", `{"graphs": {"support": {"path": "./src/g.ts:graph"}}}`, "node support"},
		"several":           {"langgraph.json", `{"graphs": {"a": "./g.ts:a", "b": "./g.js:b"}}`, "langgraph.json:NAME, of a, b"},
		"a graph in Python": {"langgraph.json", `{"graphs": {"a": "./g.py:a"}}`, "langgraph a"},
		"of both":           {"langgraph.json", `{"graphs": {"a": "./g.py:a", "b": "./g.ts:b"}}`, "langgraph.json:NAME, of a, b"},
	} {
		write(t, dir, v.file, v.text)
		e, ok, err := agent.Discover(testenv.Mkdir(t, dir, "sub "+name))
		got := ""
		if err != nil {
			got = err.Error()
		} else if ok {
			got = e.Type + " " + e.Name
		}
		if got != v.want && (err == nil || !strings.Contains(got, v.want)) {
			t.Errorf("%s: got %q, want %q", name, got, v.want)
		}
		if name == "of both" {
			if e, ok, err := agent.OfWord(dir + "/langgraph.json:b"); err != nil || !ok || e.Type != "node" {
				t.Errorf("got %+v, %v, %v", e, ok, err)
			}
		}
		if err := os.Remove(filepath.Join(dir, v.file)); err != nil {
			t.Fatal(err)
		}
	}
	write(t, dir, "agent.ts", "")
	for word, want := range map[string]string{dir + "/agent.ts:main": "main", dir + "/agent.ts:default": "agent", dir + "/agnt.ts:main": "did you mean"} {
		e, _, err := agent.OfWord(word)
		if e.Name != want && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %+v, %v", word, e, err)
		}
	}
}

func TestFindModule(t *testing.T) {
	graph := "import { StateGraph } from \"@langchain/langgraph\";\nexport const other = 1;\nexport const support = new StateGraph(S)\n  .addNode(\"a\", a)\n  .compile();\n"
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"a graph":          {map[string]string{"package.json": "", "src/graph.ts": graph}, "src/graph.ts:support"},
		"the usual name":   {map[string]string{"package.json": "", "src/a.ts": graph, "src/b.mjs": "import { ToolLoopAgent } from 'ai';\nexport const agent = new ToolLoopAgent({});\n"}, "src/b.mjs:agent"},
		"near the top":     {map[string]string{"package.json": "", "a.ts": graph, "src/b.ts": strings.ReplaceAll(graph, "support", "agent")}, "a.ts:support"},
		"of a package":     {map[string]string{"package.json": "", "node_modules/x/a.ts": graph, "a.test.ts": graph}, ""},
		"no project":       {map[string]string{"a.ts": graph}, ""},
		"another compile":  {map[string]string{"package.json": "", "a.ts": "export const css = sass.compile('a');\n"}, ""},
		"an ordinary file": {map[string]string{"package.json": "", "a.ts": "export function main(input) {}\n"}, ""},
	} {
		dir := t.TempDir()
		for file, text := range c.files {
			testenv.Mkdir(t, dir, filepath.Dir(file))
			write(t, dir, file, text)
		}
		if got, _ := nodeagent.FindModule(dir); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
	if got, ok := nodeagent.FindModule(filepath.Join(t.TempDir(), "none")); ok {
		t.Errorf("got %s in no folder", got)
	}
}
