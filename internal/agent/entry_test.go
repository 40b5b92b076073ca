package agent_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/agent/function"
	_ "github.com/evalrun/evalrun/internal/agent/types"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/wait"
)

func parse(t *testing.T, text string) (agent.Entry, input.Problems) {
	t.Helper()
	n, err := input.Parse("set.json", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	r := &input.Reader{}
	return agent.ParseEntry(r, n), r.Problems
}

func TestEntry(t *testing.T) {
	for name, tt := range map[string]struct {
		text string
		want agent.Entry
	}{
		"with the defaults": {`{"type":"function","command":["./bin/agent","-v"]}`,
			agent.Entry{Name: "agent", Type: "function", Command: []string{"./bin/agent", "-v"}, Settings: &function.Settings{Stdin: function.StdinEnvelope, Output: function.OutputStdout}, ResumeWhen: agent.ResumeAny}},
		"with everything": {`{"name":"mine","type":"function","command":["python3","agent.py"],"cwd":"py","env":{"KEY":"${KEY}"},"stdin":"input",
			"output":"file","outputFile":"answer.json","resumeWhen":"all","acceptsFaults":true,"timeout":"1m30s"}`,
			agent.Entry{Name: "mine", Type: "function", Command: []string{"python3", "agent.py"}, Cwd: "py", Env: map[string]string{"KEY": "${KEY}"},
				Settings: &function.Settings{Stdin: function.StdinInput, Output: function.OutputFile, OutputFile: "answer.json"}, ResumeWhen: agent.ResumeAll, AcceptsFaults: true, Timeout: wait.Duration(90 * time.Second)}},
	} {
		got, problems := parse(t, tt.text)
		if len(problems) > 0 {
			t.Errorf("%s: %v", name, problems)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		// What is stored with a run reads as an eval set does, and comes back the same.
		stored, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		var back agent.Entry
		if err := json.Unmarshal(stored, &back); err != nil {
			t.Fatal(err)
		}
		again, problems := parse(t, string(stored))
		if diff := cmp.Diff(got, back) + cmp.Diff(got, again); diff != "" || len(problems) > 0 {
			t.Errorf("%s: stored as %s: %s %v", name, stored, diff, problems)
		}
	}
}

// A plan has entries in this form, and its digest is one of these bytes.
func TestStoredEntry(t *testing.T) {
	for _, stored := range []string{
		`{"name":"mine","type":"function","command":["a"],"cwd":"py","env":{"K":"${K}"},"stdin":"input","output":"file","outputFile":"o.json","resumeWhen":"all","acceptsFaults":true,"timeout":"1m30s"}`,
		`{"name":"a","type":"acp","command":["a"],"extends":"qwen","model":{"url":"u","name":"m"},"files":{"f":"<&>"},"permissions":"allow","fs":true,"visible":["/srv"],"acceptsFaults":false}`,
		`{"name":"nop","type":"nop","acceptsFaults":false}`,
		`{"name":"graph","type":"langgraph","cwd":"..","entrypoint":"agent","python":"python3","keep":true,"acceptsFaults":false,"fresh":true}`,
		`{"name":"later","type":"later","acceptsFaults":false}`,
	} {
		var e agent.Entry
		if err := json.Unmarshal([]byte(stored), &e); err != nil {
			t.Fatal(err)
		}
		if again, err := jsonobj.Marshal(e); err != nil || string(again) != stored {
			t.Errorf("%s\nis stored again as %s, %v", stored, again, err)
		}
	}
}

func TestEntryThatIsWrong(t *testing.T) {
	for text, want := range map[string]string{
		`"claude-code"`:                         `set.json:1:1: no agent has the name "claude-code"; did you mean "claude"?; the registry has claude, codex,`,
		`[]`:                                    `expected an object, got an array`,
		`{}`:                                    `type: missing; expected a string`,
		`{"type":"acp","commnd":["x"]}`:         `set.json:1:15: warning: commnd: unknown key; did you mean "command"?`,
		`{"type":"a2a","url":""}`:               `url: expected`,
		`{"type":"funktion"}`:                   `did you mean "function"?`,
		`{"type":"langraph"}`:                   `unknown type "langraph"; supported: function, node, python, langgraph, uipath, openai-agents, pydantic-ai, llamaindex, google-adk, acp, model, http, a2a, langgraph-server, oracle, nop; did you mean "langgraph"?`,
		`{"type":"python"}`:                     `entrypoint: missing; expected a string`,
		`{"type":"python","entrypoint":"a.py"}`: `entrypoint: expected a function as FILE.py:NAME or module:NAME, got "a.py"`,
		`{"type":"function","command":["a"],"keep":true,"output":"file"}`: `keep: a program that is kept reads and writes by the protocol`,
		`{"type":"function"}`:                                                           `command: missing; expected an array`,
		`{"type":"function","command":[]}`:                                              `command: expected a program and its arguments`,
		`{"type":"function","command":[""]}`:                                            `command: expected a program and its arguments`,
		`{"type":"function","command":["a",1]}`:                                         `command[1]: expected a string, got a number`,
		`{"type":"function","command":["a"],"cmd":1,"resume_when":"al"}`:                `resume_when: expected one of any, all, got "al"`,
		`{"type":"function","command":["a"],"acceptFaults":true}`:                       `acceptFaults: unknown key; did you mean "acceptsFaults"?`,
		`{"type":"function","command":["a"],"output":"lastline"}`:                       `did you mean "last-line"?`,
		`{"type":"function","command":["a"],"timeout":5}`:                               `expected a duration such as`,
		`{"type":"function","command":["a"],"env":{"A B":"1"}}`:                         `"A B" is not a name that an environment variable can have`,
		`{"type":"function","command":["a"],"env":{"EVALRUN_X":"1"}}`:                   `are set by evalrun itself`,
		`{"type":"function","command":["a"],"outputFile":"x"}`:                          `has a meaning only with "output": "file"`,
		`{"type":"function","command":["a"],"output":"file","outputFile":"../x"}`:       `expected the name of a file`,
		`{"type":"function","command":["a"],"output":"file","outputFile":"stderr.log"}`: `expected the name of a file`,
		`{"type":"acp"}`:                                                   `command: missing; expected an array`,
		`{"type":"acp","extends":"clude"}`:                                 `extends: no ACP agent of the registry has the name "clude"; did you mean "claude"?`,
		`{"type":"acp","extends":"oracle"}`:                                `extends: no ACP agent of the registry has the name "oracle"`,
		`{"type":"acp","command":["a"],"permissions":"ask"}`:               `permissions: expected one of allow, deny, suspend, got "ask"`,
		`{"type":"acp","command":["a"],"elicitation":"allow"}`:             `elicitation: expected one of deny, suspend, got "allow"`,
		`{"type":"acp","command":["a"],"resumeBy":["load","reload"]}`:      `resumeBy[1]: expected one of ["resume" "load" "replay"]; did you mean "load"?`,
		`{"type":"acp","command":["a"],"model":{"api":"openai"}}`:          `model: expected the endpoint's "url"`,
		`{"type":"acp","command":["a"],"model":{"url":"u","api":"azure"}}`: `api: expected one of openai, anthropic, gemini, got "azure"`,
		`{"type":"acp","command":["a"],"model":{"url":"u","urls":"x"}}`:    `urls: unknown key; did you mean "url"?`,
		`{"type":"acp","command":["a"],"files":{"../x":""}}`:               `expected the path of a file in the agent's home`,
		`{"type":"acp","command":["a"],"files":{"/etc/x":""}}`:             `expected the path of a file in the agent's home`,
		`{"type":"acp","command":["a"],"visible":["tools"]}`:               `visible[0]: expected the absolute path of a folder below /, got "tools"`,
		`{"type":"acp","command":["a"],"visible":["/"]}`:                   `visible[0]: expected the absolute path of a folder below /`,
		`{"type":"acp","command":["a"],"idleTimeout":"soon"}`:              `expected a duration such as`,
		`{"type":"acp","command":["a"],"stdin":"input"}`:                   `stdin: unknown key`,
		`{"type":"nop","env":{"A":"b"}}`:                                   `env: unknown key`,
		`{"type":"nop","command":["a"]}`:                                   `command: unknown key`,
	} {
		if _, problems := parse(t, text); !strings.Contains(problems.Error(), want) {
			t.Errorf("%s: got %v\nwant %s", text, problems, want)
		}
	}
}

func TestCheckRefusesWhatCannotRun(t *testing.T) {
	for _, e := range []agent.Entry{{Name: "a", Type: "later", Command: []string{"a"}}, {Name: "a", Type: "langgraph", Command: []string{"a"}}, {Type: "acp"}, {Type: "function"}, {Type: "function", Command: []string{""}}} {
		if err := e.Check(); err == nil {
			t.Errorf("%+v was taken", e)
		}
	}
}
