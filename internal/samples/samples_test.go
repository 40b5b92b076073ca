package samples

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/internal/jq"
)

// made imports a file, and returns what an expression of jq finds in the set, with what was said.
func made(t *testing.T, name, content string, o Options, expression string) (got string, said []string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := Import(path, o)
	if err != nil {
		return err.Error(), nil
	}
	for _, p := range append(m.Missing, m.Differs...) {
		said = append(said, strings.TrimPrefix(p.Error(), path+":"))
	}
	e, err := jq.Compile(expression)
	if err != nil {
		t.Fatal(err)
	}
	found, err := e.Value(t.Context(), m.Set)
	if err != nil {
		t.Fatal(err)
	}
	return string(found), said
}

func TestSamplesBecomeEvaluations(t *testing.T) {
	const how = "target: the file does not say how answers are compared; here they pass with "
	for name, c := range map[string]struct {
		file, content string
		o             Options
		find, want    string
		said          []string
	}{
		"a sample of OpenAI evals": {"s.jsonl", `{"input": [{"role": "system", "content": "One word."}, {"role": "user", "content": "2+2?"}], "ideal": "4"}`,
			Options{Model: "openai/m"}, `[.agent, .evaluations[0]]`,
			`[{"messages":[{"content":"{{messages.1.content}}","role":"user"}],"model":"openai/m","system":"{{messages.0.content}}","type":"model"},` +
				`{"checks":[{"startsWith":"4"}],"evaluationCriterias":{},"id":"1","inputs":{"messages":[{"content":"One word.","role":"system"},{"content":"2+2?","role":"user"}]},"name":"1"}]`,
			[]string{"1:1: warning: " + how + "startsWith (--check)"}},
		"several ideals, and examples": {"s.jsonl", `{"input": [{"role": "system", "name": "example_user", "content": "a"}, {"role": "system", "name": "example_assistant", "content": "b"}, {"role": "user", "content": "c"}], "ideal": ["d", "e"]}`,
			Options{Model: "openai/m", Check: "contains"}, `[.agent.messages[].role, .evaluations[0].checks[0]]`,
			`["user","assistant","user",{"anyOf":[{"contains":"d"},{"contains":"e"}]}]`, nil},
		"a table of Inspect": {"s.csv", "input,target,id,metadata,topic\nCapital?,Paris,q1,\"{\"\"level\"\": 1}\",x\n,,,,\n2+2?,4,q2,,\n",
			Options{}, `[.evaluators[0].path, (.evaluations[] | [.id, .inputs.prompt, .checks[0], .metadata])]`,
			`["content",["q1","Capital?",{"contains":"Paris","ignoreCase":true},{"level":1}],["q2","2+2?",{"contains":"4","ignoreCase":true},null]]`,
			[]string{"2:1: warning: " + how + "contains (--check)", "2:1: warning: topic: topic is left out: Inspect does not read it, either, unless a program says so"}},
		"choices": {"s.json", `[{"input": "Which?", "choices": ["red", "blue"], "target": "B"}, {"input": "And?", "choices": "a,b,,c", "target": ["A", "C"]}]`,
			Options{}, `[.evaluations[] | [.inputs.prompt, .checks]]`,
			`[["Which?\n\nA) red\nB) blue\n\nAnswer with one letter alone.",[{"choice":"B","choices":"AB"}]],["And?\n\nA) a\nB) b\nC) c\n\nAnswer with one letter alone.",null]]`,
			[]string{"1:1: target: a choice of several letters has no counterpart",
				"1:1: warning: choices: the choices are added to the question, with a line that asks for one letter"}},
		"images": {"s.jsonl", `{"input": [{"role": "user", "content": [{"type": "text", "text": "What?"}, {"type": "image", "image": "a.png"}]}], "target": "cat"}` + "\n" +
			`{"input": "only text", "target": "x"}` + "\n" + `{"input": [{"role": "user", "content": [{"type": "audio", "audio": "a.mp3", "format": "mp3"}]}], "target": "x"}`,
			Options{Model: "anthropic/m", Check: "equals"}, `[.agent.messages, [.evaluations[] | [.id, .inputs]]]`,
			`[[{"content":[{"text":"{{messages.0.content.0.text}}"},{"file":"{{messages.0.content.1.file}}"}],"role":"user"}],` +
				`[["1",{"messages":[{"content":[{"text":"What?"},{"file":"a.png"}],"role":"user"}]}]]]`,
			[]string{"2:1: input: its messages are of another form than those of line 1, and one model agent has one form: import it apart",
				"3:1: input: a part of the type audio in a message of the role user has no counterpart"}},
		"sandboxes and files, and messages without a model": {"s.jsonl", `{"input": "x", "target": "y", "files": {"a": "b"}, "setup": "ls", "sandbox": "docker"}` + "\n" +
			`{"input": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}], "target": "y"}`,
			Options{Check: "contains"}, `.evaluations | length`, `1`,
			[]string{"1:1: files: files has no counterpart", "1:1: setup: setup has no counterpart", "1:1: sandbox: sandbox has no counterpart",
				"2:1: input: several messages or parts need --model PROVIDER/MODEL, which gets them, or --agent"}},
		"an agent gets messages of any form": {"s.jsonl", `{"input": "x", "target": "y"}` + "\n" + `{"input": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}], "target": "y"}`,
			Options{Agent: json.RawMessage(`"mine"`), Path: "answer", Check: "contains"}, `[.agent, .evaluators[0].path, .evaluations[0].inputs, (.evaluations[1].inputs.messages | length)]`,
			`["mine","answer",{"prompt":"x"},3]`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, said := made(t, c.file, c.content, c.o, c.find)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(c.said, said); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestSamplesThatCannotBeRead(t *testing.T) {
	for content, want := range map[string]string{
		"":                              "there are no samples in it",
		`{"ideal": "x"}`:                "1:1: input: expected a sample with the key input",
		`{"input": "", "target": "x"}`:  "1:1: input: expected a sample with the key input",
		`{"input": "a", "target": "x"`:  ":1:",
		`["a"]`:                         "expected an object on each line",
		`{"input": [3], "target": "x"}`: "there are no samples in it",
		`{"input": "a", "id": 1}` + "\n" + `{"input": "b", "id": 1}`: `2:1: id: the id "1" is that of line 1, too`,
		`{"input": "a", "metadata": "x"}`:                            "metadata: expected an object of JSON",
	} {
		if got, _ := made(t, "s.jsonl", content, Options{}, "."); !strings.Contains(got, want) {
			t.Errorf("%s: got %s, want %s", content, got, want)
		}
	}
}
