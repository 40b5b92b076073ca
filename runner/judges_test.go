package runner

import (
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/agent/function"
	"github.com/evalrun/evalrun/internal/judge"
)

const judgedUpload = `{"version": "1.0", "id": "s", "name": "S", "agent": "echo",
	"evaluators": [{"version": "1.0", "id": "j", "evaluatorTypeId": "uipath-llm-judge-output-semantic-similarity", "evaluatorConfig": {"name": "j", "model": "MODEL"}}],
	"evaluations": [{"id": "e", "name": "E", "inputs": {}, "evaluationCriterias": {"j": {"expectedOutput": {}}}}]}`

// loadJudged loads an uploaded set with a judge that asks this model, in a service with these judges.
func loadJudged(t *testing.T, model string, judges *judge.Config, change func(*LoadOptions)) *EvalSet {
	t.Helper()
	echo := function.FromCommand([]string{"cat"})
	echo.Name = "echo"
	o := LoadOptions{Upload: &Upload{Name: "upload.json", Data: []byte(strings.Replace(judgedUpload, "MODEL", model, 1)), Dir: t.TempDir()},
		Catalog:   &Catalog{Dir: t.TempDir(), Agents: []agent.Entry{echo}, Judges: judges},
		Variables: Variables{values: map[string]string{"OPENAI_API_KEY": "the-key-of-the-service"}}}
	if change != nil {
		change(&o)
	}
	e, err := Load(nil, o)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// Whoever uploads an eval set asks only the judges that the service's configuration names, although
// the service has keys.
func TestUploadsAskTheJudgesOfTheService(t *testing.T) {
	if got := loadJudged(t, "gpt-5", nil, nil).req.Set.Evaluators[0].NotRun; !strings.Contains(got, "no provider of judges has the model gpt-5") {
		t.Errorf("without judges in the configuration: %q", got)
	}
	c := judge.Default()
	e := loadJudged(t, "gpt-5", &c, nil)
	if got := e.req.Set.Evaluators[0].NotRun; got != "" || e.req.Judges == nil {
		t.Errorf("with judges in the configuration: %q", got)
	}
	if got := loadJudged(t, "claude-x", &c, func(o *LoadOptions) { t.Setenv("ANTHROPIC_API_KEY", "") }); !strings.Contains(got.req.Set.Evaluators[0].NotRun, "ANTHROPIC_API_KEY") || got.req.Judges != nil {
		t.Errorf("without a key for the model: %+v", got.req.Set.Evaluators[0])
	}
}

// The lists of an agent in an upload, which may be long, are not multiplied before it is refused.
func TestTheListsOfAnUploadedAgentAreNotMultiplied(t *testing.T) {
	const n = 300
	list := `["openai/x"` + strings.Repeat(`, "openai/x"`, n-1) + `]`
	set := strings.Replace(judgedUpload, `"echo"`, `{"type": "model", "models": `+list+`, "prompts": `+list+`}`, 1)
	made := testing.AllocsPerRun(1, func() {
		_, err := Load(nil, LoadOptions{Upload: &Upload{Name: "upload.json", Data: []byte(set), Dir: t.TempDir()}, Catalog: &Catalog{Dir: t.TempDir()}})
		if err == nil || !strings.Contains(err.Error(), "expected the name of an agent") {
			t.Errorf("got %v", err)
		}
	})
	if made > n*n/2 {
		t.Errorf("%v allocations for two lists of %d", made, n)
	}
}

func TestTheModelOfJudgesThatNameNone(t *testing.T) {
	t.Setenv(judgeModelVar, "from-the-environment")
	for name, v := range map[string]struct{ option, configured, want string }{
		"environment": {"", "", "from-the-environment"}, "the set": {"", "of-the-set", "of-the-set"}, "the option": {"given", "of-the-set", "given"},
	} {
		c := judge.Default()
		c.Model = v.configured
		e := loadJudged(t, "same-as-agent", &c, func(o *LoadOptions) { o.JudgeModel = v.option })
		if e.req.Set.Evaluators[0].NotRun != "" || e.req.Judges.Model != v.want {
			t.Errorf("%s: %q, %s", name, e.req.Judges.Model, e.req.Set.Evaluators[0].NotRun)
		}
	}
}

// Models prefer what they have written, so that it is said where one judges itself.
func TestAJudgeThatIsTheAgentsOwnModelIsSaid(t *testing.T) {
	c := judge.Default()
	for model, want := range map[string]bool{"gpt-5": true, "same-as-agent": true, "gpt-5-mini": false} {
		e := loadJudged(t, model, &c, func(o *LoadOptions) {
			writer := &o.Catalog.Agents[0]
			writer.Model = &agent.Model{Name: "gpt-5"}
		})
		if got := strings.Contains(e.Warnings, "the evaluator j judges the agent echo by its own model, gpt-5"); got != want {
			t.Errorf("%s: %q", model, e.Warnings)
		}
	}
}
