package pyagent_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/agent/pyagent"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/testenv"
)

// write writes files into a new folder.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	for name, text := range files {
		path := filepath.Join(dir, name)
		err = errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o755))
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestDiscover(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  string // the type, name and folder of the agent, or a part of the error
	}{
		"one graph, sets deep below":  {map[string]string{"langgraph.json": `{"graphs": {"agent": "./g.py:g"}}`, "evaluations/eval-sets/a.json": ""}, "langgraph agent ."},
		"a framework before uipath":   {map[string]string{"langgraph.json": `{"graphs": {"agent": "./g.py:g"}}`, "uipath.json": `{"functions": {"main": "m.py:m"}}`}, "langgraph agent ."},
		"another before uipath":       {map[string]string{"openai_agents.json": `{"agents": {"support": "a.py:a"}}`, "uipath.json": `{"functions": {"main": "m.py:m"}}`}, "openai-agents support ."},
		"llamaindex":                  {map[string]string{"llama_index.json": `{"workflows": {"flow": "f.py:f"}}`}, "llamaindex flow ."},
		"adk":                         {map[string]string{"google_adk.json": `{"agents": {"support": "a.py:a"}}`}, "google-adk support ."},
		"pydantic ai":                 {map[string]string{"pydantic_ai.json": `{"agents": {"support": "a.py:a"}}`}, "pydantic-ai support ."},
		"uipath":                      {map[string]string{"uipath.json": `{"functions": {"main": "m.py:m"}, "agents": {"main": "n.py:n"}}`}, "uipath main ."},
		"several":                     {map[string]string{"langgraph.json": `{"graphs": {"b": "./g.py:g", "a": "./g.py:g"}}`}, "langgraph.json:NAME, of a, b"},
		"none":                        {map[string]string{"langgraph.json": `{}`}, "names no agent"},
		"not JSON":                    {map[string]string{"langgraph.json": `{`}, "langgraph.json: unexpected end"},
		"nothing":                     {nil, ""},
		"of another repository above": {map[string]string{"langgraph.json": `{"graphs": {"agent": "./g.py:g"}}`, "evaluations/.git/x": ""}, ""},
	} {
		dir := write(t, c.files)
		from := testenv.Mkdir(t, dir, "evaluations", "eval-sets")
		testenv.Mkdir(t, dir, ".git")
		e, ok, err := agent.Discover(from)
		got := ""
		if err != nil {
			got = err.Error()
		} else if ok {
			got = e.Type + " " + e.Name + " " + strings.Replace(e.Cwd, dir, ".", 1)
		}
		if got != c.want && (err == nil || c.want == "" || !strings.Contains(got, c.want)) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func TestAgentsOfTheCommandLine(t *testing.T) {
	dir := write(t, map[string]string{"langgraph.json": `{"graphs": {"agent": "./g.py:g", "other": "./g.py:g"}}`, "agent.py": "",
		"sdk.py": "from agents import Agent\nagent = Agent(name='a')\ndef main(): pass\n"})
	for word, want := range map[string]string{
		dir + "/langgraph.json:agent":  "langgraph agent",
		dir + "/langgraph.json:agnt":   `names no agent "agnt"; did you mean "agent"?; it names agent, other`,
		dir + "/langgraph.json":        "names several agents",
		dir + "/none/uipath.json:main": "uipath.json",
		dir + "/agent.py:main":         "python main",
		dir + "/agnt.py:main":          "agnt.py",
		dir + "/sdk.py:agent":          "openai-agents agent",
		dir + "/sdk.py:main":           "python main",
		"package.module:Agent.run":     "python Agent.run",
		"claude":                       "",
		"./agents/one.json":            "",
		"C:/agent.json":                "",
	} {
		e, ok, err := agent.OfWord(word)
		got := ""
		if err != nil {
			got = err.Error()
		} else if ok {
			got = e.Type + " " + e.Name
		}
		if got != want && (err == nil || !strings.Contains(got, want)) {
			t.Errorf("%s: got %q, want %q", word, got, want)
		}
	}
}

// What an entry point cannot lead to is known without Python.
func TestEntryPointsThatAreAbsent(t *testing.T) {
	entry := func(kind, entrypoint, cwd string) agent.Entry {
		return agent.Entry{Type: kind, Cwd: cwd, Settings: &pyagent.Settings{Entrypoint: entrypoint}}
	}
	dir := write(t, map[string]string{"agent.py": "class Agent:\n    def run(self): pass\nasync def main(): pass\n",
		"empty.py": "", "all.py": "from agent import *\n", "lazy.py": "def __getattr__(name): return print\n", "sub/agent.py": "other = print\n"})
	for entrypoint, want := range map[string]string{
		"agent.py:main":             "",
		"agent.py:Agent.run":        "",
		"agent.py:__call__":         "",
		"all.py:main":               "",
		"lazy.py:main":              "",
		"sub/agent.py:other":        "",
		dir + "/sub/agent.py:other": "",
		"package.module:main":       "",
		"agent.py:mian":             `agent.py has no "mian"; did you mean "main"?; it has Agent, main`,
		"agent.py:Agnt.run":         `agent.py has no "Agnt.run"; it has Agent, main`,
		"empty.py:main":             `empty.py has no "main"`,
		"agnt.py:main":              "there is no file " + dir + `/agnt.py; did you mean "` + dir + `/agent.py"?`,
	} {
		got := ""
		if err := entry(pyagent.Python, entrypoint, ".").Absent(dir); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", entrypoint, got, want)
		}
	}
	if err := entry(pyagent.OpenAIAgents, "agent.py:main", "sub").Absent(dir); err == nil {
		t.Error("in the folder of the entry: expected an error")
	}
	if err := entry(pyagent.LangGraph, "agent", ".").Absent(dir); err != nil {
		t.Error(err)
	}
}

// The project's own variables are given to the agent, whose environment is stronger, and those that
// look like secrets are known as such.
func TestVariablesOfAProject(t *testing.T) {
	testenv.NeedPython(t)
	t.Setenv("FROM_OUTSIDE", "outside")
	dir := write(t, map[string]string{
		".env": "# settings\nexport A=1\nB = \"two words\" # why\nC='x#y'\nD=plain # why\nFROM_OUTSIDE=inside\nOPENAI_API_KEY=sk-1234567890\n=none\nno line\n" +
			"KEY_OF_LINES=\"-----BEGIN\nA=not one\n-----END\" # why\r\nESCAPED=\"a\\n\\\"b\\\"\"\nSINGLE='a\\n\\'b'\nURL=http://${A}@${NONE:-host}/${FROM_OUTSIDE}\n",
		"uipath.json": `{"functions": {"main": "main.py:main"}}`,
		"main.py":     "import os\ndef main():\n    return [os.environ.get(n) for n in ('A', 'B', 'C', 'D', 'FROM_OUTSIDE', 'OPENAI_API_KEY', 'UIPATH_TELEMETRY_ENABLED', 'KEY_OF_LINES', 'ESCAPED', 'SINGLE', 'URL')]\n",
	})
	p := open(t, dir, `{"type": "uipath", "python": "python3"}`, agent.Options{})
	p.run(p.segment("null")).wants(t, `{"result":["1","two words","x#y","plain","outside","sk-1234567890","false","-----BEGIN\nA=not one\n-----END","a\n\"b\"","a\\n'b","http://1@host/outside"]}`)
	var e agent.Entry
	if err := json.Unmarshal([]byte(`{"type": "uipath"}`), &e); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"OPENAI_API_KEY": "sk-1234567890", "KEY_OF_LINES": "-----BEGIN\nA=not one\n-----END"}, e.Secrets(dir)); diff != "" {
		t.Error(diff)
	}
}

// Given a project with an environment of some tool, then its interpreter runs the agent, and a tool
// is asked only once.
func TestTheInterpreterOfAProject(t *testing.T) {
	testenv.NeedPython(t)
	const script = "#!/bin/sh\nexport CHOSEN=$0\nexec python3 \"$@\"\n"
	const tool = "#!/bin/sh\necho \"$@\" >>asked\nwhile [ \"$1\" != python ]; do shift; done\necho \"$PWD/tool/python\"\n"
	for name, c := range map[string]struct {
		more  string
		files map[string]string
		want  string
	}{
		"a virtual environment":          {"", map[string]string{".venv/bin/python": script}, ".venv/bin/python"},
		"one above":                      {`, "cwd": "sub"`, map[string]string{".venv/bin/python": script, "sub/.keep": ""}, ".venv/bin/python"},
		"uv":                             {`, "env": {"PATH": "bin:/usr/local/bin:/usr/bin:/bin:${PATH}"}`, map[string]string{"uv.lock": "", "poetry.lock": "", "bin/uv": tool, "tool/python": script}, "tool/python"},
		"poetry":                         {`, "env": {"PATH": "bin:/usr/local/bin:/usr/bin:/bin:${PATH}"}`, map[string]string{"poetry.lock": "", "bin/poetry": tool, "tool/python": script}, "tool/python"},
		"the one that the entry names":   {`, "python": "my/python"`, map[string]string{".venv/bin/python": script, "my/python": script}, "my/python"},
		"one that the entry names wrong": {`, "python": "my/python"`, map[string]string{".venv/bin/python": script}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := write(t, c.files)
			testenv.Mkdir(t, dir, ".git")
			at := filepath.Join(dir, "agent.py")
			if strings.Contains(c.more, "sub") {
				at = filepath.Join(dir, "sub", "agent.py")
			}
			if err := os.WriteFile(at, []byte("import os\ndef main():\n    return os.environ.get('CHOSEN')\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			p := open(t, dir, `{"type": "python", "entrypoint": "agent.py:main"`+c.more+`}`, agent.Options{})
			out := p.run(p.segment("{}"))
			if c.want == "" {
				out.faults(t, fault.Start, "my/python, which does not exist")
				return
			}
			out.wants(t, `"`+filepath.Join(dir, c.want)+`"`)
			if strings.HasPrefix(c.want, "tool") {
				p.run(p.segment("{}"))
				if asked := testenv.ReadFile(t, dir, "asked"); strings.Count(asked, "import sys") != 1 {
					t.Errorf("it was asked %q", asked)
				}
			}
		})
	}
}

// The agent of a project is found by the imports of its modules and by what they make.
func TestFindModule(t *testing.T) {
	const sdk, pydantic = "from agents import Agent, Runner\n", "import pydantic_ai\n"
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"the Agents SDK":          {map[string]string{"src/support/main.py": sdk + "triage: Agent[int] = Agent[int](\n    name='t',\n)\n"}, "openai-agents src/support/main.py:triage"},
		"Pydantic AI":             {map[string]string{"bot.py": pydantic + "bot = pydantic_ai.Agent('openai:gpt-5')\n"}, "pydantic-ai bot.py:bot"},
		"ADK":                     {map[string]string{"a/agent.py": "from google.adk.agents import LlmAgent\nroot_agent = LlmAgent(name='a')\n"}, "google-adk a/agent.py:root_agent"},
		"a workflow":              {map[string]string{"flow.py": "from workflows import Workflow\nclass Flow(Workflow):\n    pass\nflow = Flow(timeout=1)\n"}, "llamaindex flow.py:flow"},
		"a graph":                 {map[string]string{"g.py": "from langgraph.graph import StateGraph\nflow = StateGraph(dict)\ngraph = flow.compile()\n"}, "langgraph g.py:graph"},
		"one with a usual name":   {map[string]string{"a.py": sdk + "agent = Agent(name='a')\nhelper = Agent(name='h')\n"}, "openai-agents a.py:agent"},
		"the last of a file":      {map[string]string{"a.py": sdk + "helper = Agent(name='h')\ntriage = Agent(name='t', handoffs=[helper])\n"}, "openai-agents a.py:triage"},
		"near the top first":      {map[string]string{"z.py": sdk + "one = Agent(name='a')\n", "deep/a.py": sdk + "agent = Agent(name='a')\n"}, "openai-agents z.py:one"},
		"made in a function":      {map[string]string{"a.py": sdk + "def f():\n    agent = Agent(name='a')\n"}, ""},
		"not imported":            {map[string]string{"a.py": "from mine import Agent\nagent = Agent(name='a')\n"}, ""},
		"agents of its own":       {map[string]string{"a.py": sdk + "agent = Agent(name='a')\n", "agents/__init__.py": ""}, ""},
		"tests, hidden, packages": {map[string]string{"tests/a.py": sdk + "agent = Agent(name='a')\n", ".x/a.py": sdk + "agent = Agent(name='a')\n", "env/pyvenv.cfg": "", "env/a.py": sdk + "agent = Agent(name='a')\n", "test_a.py": sdk + "agent = Agent(name='a')\n"}, ""},
		"too deep":                {map[string]string{"a/b/c/d/e/f.py": sdk + "agent = Agent(name='a')\n"}, ""},
	} {
		found, ok := pyagent.FindModule(write(t, c.files))
		if got := strings.TrimSpace(found.Type + " " + found.Entrypoint); got != c.want || ok != (c.want != "") {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

// What an agent of a framework needs is named when it cannot be loaded.
func TestAgentsOfFrameworksThatCannotBeLoaded(t *testing.T) {
	testenv.NeedPython(t)
	dir := write(t, map[string]string{
		"missing.py": "import agents_of_nobody\n", "number.py": "agent = 1\n", "requirements.txt": "openai-agents\n",
		"openai_agents.json": `{"agents": {"one": "number.py:agent", "two": "number.py:agent"}}`,
	})
	for entrypoint, says := range map[string]string{
		"missing.py:agent": "-m pip install -r requirements.txt",
		"three":            "openai_agents.json names no agent 'three'; it names one, two",
		"":                 "openai_agents.json names no agent ''; it names one, two",
	} {
		p := open(t, dir, `{"type": "openai-agents", "entrypoint": "`+entrypoint+`", "python": "python3"}`, agent.Options{})
		p.run(p.segment(`"hello"`)).faults(t, fault.Start, says)
	}
	p := open(t, dir, `{"type": "pydantic-ai", "entrypoint": "support", "python": "python3"}`, agent.Options{})
	p.run(p.segment(`"hello"`)).faults(t, fault.Start, "there is no pydantic_ai.json that names it; name it as FILE.py:NAME")
}

// A package of the project's own is not taken for a framework that has its name.
func TestAPackageThatIsCalledAsAFramework(t *testing.T) {
	testenv.NeedPython(t)
	const own = "class Own:\n    def __call__(self, input):\n        return {'own': input}\n\nown = Own()\n"
	dir := write(t, map[string]string{"agents/__init__.py": "", "agents/own.py": own, "workflows/__init__.py": own})
	for _, entrypoint := range []string{"agents.own:own", "workflows:own"} {
		p := open(t, dir, `{"type": "python", "entrypoint": "`+entrypoint+`", "python": "python3"}`, agent.Options{})
		if out := p.run(p.segment(`"hello"`)); string(out.Output) != `{"own":"hello"}` {
			t.Errorf("%s: got %s, %v", entrypoint, out.Output, out.Fault)
		}
	}
}
