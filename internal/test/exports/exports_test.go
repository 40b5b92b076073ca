package exports

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/evalrun/evalrun/internal/testenv"
	"github.com/evalrun/evalrun/schemas"
)

// programs has evalrun and an agent that speaks ACP, built for the first test that is not skipped.
var programs string

var build = sync.OnceValue(func() error { return testenv.Build(programs, testenv.Evalrun, testenv.ACPAgent) })

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	var err error
	if programs, err = os.MkdirTemp("", "evalrun-exports"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(programs)
	return m.Run()
}

// other is the Python of another program, or the test is skipped.
func other(t *testing.T, name string) string {
	t.Helper()
	variable := "EVALRUN_" + strings.ToUpper(name)
	path := os.Getenv(variable + "_PYTHON")
	if path == "" {
		path = filepath.Join(".venv-"+name, "bin", "python")
	}
	_, err := exec.LookPath(path)
	if err != nil {
		err = errors.New(name + "'s package is not installed: see doc.go for the commands")
	}
	testenv.Need(t, variable, err)
	return path
}

// The function agent answers, fails, or asks a person first; the coding agent thinks, writes a
// file, and asks for a permission.
const (
	functionAgent = `in=$(cat)
span() { printf '{"name":"%s","start_time":"2026-01-02T03:04:05Z","attributes":{"tool.name":"%s","tool.call_id":"c","input.value":"{\\"key\\":1}","output.value":"found"}}\n' "$1" "$1" >>"$EVALRUN_TRACE_FILE"; }
case "$in" in
*'"fail":true'*) exit 3 ;;
*'"ask":true'*'"resume":null'*) span look; printf '{"__interrupt__":{"id":"may-i","value":{"title":"May I?"}},"__usage__":{"model":"m","inputTokens":10,"outputTokens":2,"cost":0.25}}' ;;
*) span add; printf '{"sum":3,"__usage__":{"model":"m","inputTokens":5,"outputTokens":1,"cost":0.5}}' ;;
esac`
	functionSet = `{"version":"1.0","id":"sums","name":"Sums","epochs":2,"evaluators":[{"id":"exact","evaluatorTypeId":"uipath-exact-match","evaluatorConfig":{"targetOutputKey":"sum"}}],
"evaluations":[{"id":"good","name":"Good","inputs":{"a":1},"evaluationCriterias":{"exact":{"expectedOutput":{"sum":3}}}},
{"id":"bad","name":"Bad","inputs":{"a":1},"evaluationCriterias":{"exact":{"expectedOutput":{"sum":4}}}},
{"id":"broken","name":"Broken","inputs":{"fail":true},"evaluationCriterias":{"exact":{"expectedOutput":{"sum":4}}}},
{"id":"waits/1","name":"Waits","inputs":{"ask":true},"evaluationCriterias":{"exact":{"expectedOutput":{"sum":3}}}}]}`
	codingSet = `{"version":"1.0","id":"code","name":"Code","agent":{"type":"acp","name":"coder","command":["acp-agent"],"permissions":"suspend"},
"evaluators":[{"id":"says","evaluatorTypeId":"uipath-contains","evaluatorConfig":{}}],
"evaluations":[{"id":"deploy","name":"Deploy","inputs":{"prompt":"[[UPDATE {\"sessionUpdate\":\"agent_thought_chunk\",\"content\":{\"type\":\"text\",\"text\":\"let me see\"}}]][[SAY I begin]][[UPDATE {\"sessionUpdate\":\"tool_call\",\"toolCallId\":\"t1\",\"title\":\"read\",\"kind\":\"read\",\"status\":\"completed\",\"rawInput\":{\"path\":\"x\"},\"rawOutput\":\"seen\"}]][[ASK execute Deploy {\"to\": \"production\"}]]"},"evaluationCriterias":{"says":{"searchText":"allowed"}}}]}`
)

// world is a folder with a store in which runs were made.
type world struct {
	t   *testing.T
	dir string
}

func newWorld(t *testing.T) world {
	if err := build(); err != nil {
		t.Fatal(err)
	}
	w := world{t, t.TempDir()}
	for name, text := range map[string]string{"agent.sh": functionAgent, "sums.json": functionSet, "code.json": codingSet} {
		if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// evalrun runs a command, which must end with the code.
func (w world) evalrun(code int, args ...string) string {
	w.t.Helper()
	cmd := exec.Command(filepath.Join(programs, "evalrun"), args...) //nolint:gosec // our own program
	cmd.Dir, cmd.Env = w.dir, append(os.Environ(), "PATH="+programs+string(os.PathListSeparator)+os.Getenv("PATH"))
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); cmd.ProcessState.ExitCode() != code {
		w.t.Fatalf("evalrun %q: %v, expected code %d\n%s", args, err, code, &stderr)
	}
	return stdout.String()
}

// document is the results document of a run.
func (w world) document(run string) (doc schemas.Results) {
	w.t.Helper()
	if err := json.Unmarshal([]byte(w.evalrun(0, "report", "--format", "json", run)), &doc); err != nil {
		w.t.Fatal(err)
	}
	return doc
}

// approve answers what a run waits for.
func (w world) approve(run string) {
	var waiting []struct{ TriggerID string }
	if err := json.Unmarshal([]byte(w.evalrun(0, "triggers", "--json", run)), &waiting); err != nil || len(waiting) == 0 {
		w.t.Fatal(waiting, err)
	}
	for _, one := range waiting {
		w.evalrun(0, "approve", "-q", one.TriggerID)
	}
}

// python runs a script with the Python of another program.
func python(t *testing.T, interpreter, script, stdin string, args ...string) []byte {
	t.Helper()
	text, err := os.ReadFile(script)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(interpreter, append([]string{"-c", string(text)}, args...)...) //nolint:gosec // our own script
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	cmd.Stdin, cmd.Stderr = strings.NewReader(stdin), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", script, err)
	}
	return out
}

func same[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	a, _ := json.Marshal(got) // of what was read from JSON
	b, _ := json.Marshal(want)
	if !bytes.Equal(a, b) {
		t.Errorf("%s is\n%s, expected\n%s", what, a, b)
	}
}

func index(doc schemas.Results) map[string]schemas.Rollout {
	out := map[string]schemas.Rollout{}
	for _, one := range doc.EvaluationSetResults {
		out[one.RolloutID] = one
	}
	return out
}

// spoken are the parts of the coding agent's conversation, in both formats.
func isSpoken(t *testing.T, parts []string) {
	t.Helper()
	at := 0
	for _, want := range []string{"user:", "thought:let me see", "agent:I begin", "call:read", "result:seen", "user:", "agent:"} {
		i := slices.IndexFunc(parts[at:], func(part string) bool { return strings.HasPrefix(part, want) })
		if i < 0 {
			t.Fatalf("%q is missing in its place in %q", want, parts)
		}
		at += i + 1
	}
}
