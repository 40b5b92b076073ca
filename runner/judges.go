package runner

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/kinds"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/files"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/judge"
	"github.com/evalrun/evalrun/internal/plans"
	"github.com/evalrun/evalrun/internal/rollout"
)

// judgeModelVar names the model of judges that would ask the agent's own, if --judge-model does
// not.
const judgeModelVar = "EVALRUN_JUDGE_MODEL"

// readJudges reads the judges of the set, and the options that override them.
func (e *EvalSet) readJudges(r *input.Reader) {
	set := e.req.Set
	c := judge.ParseConfig(r, set.Judges)
	switch catalog := e.opts.Catalog; {
	case set.Judges != nil:
	case catalog != nil && catalog.Judges != nil:
		c = *catalog.Judges
	case e.opts.Upload != nil:
		c = judge.Config{} // uploaders must not use the keys of the service
	}
	c.Model = cmp.Or(e.opts.JudgeModel, c.Model, os.Getenv(judgeModelVar))
	c.NoCache = e.opts.NoJudgeCache
	c.Batch.Enabled = c.Batch.Enabled || e.opts.JudgeBatch
	if c.Prices == nil {
		c.Prices = set.Prices
	}
	e.req.Judges = &c
}

// chooseJudges marks the evaluators that ask models as not run, with the reason, if they can judge
// no agent's rollouts. A set without such evaluators stores no judges.
func (e *EvalSet) chooseJudges(r *input.Reader) error {
	set, used := e.req.Set, false
	for i := range set.Evaluators {
		def := &set.Evaluators[i]
		models := kinds.All.JudgeModels(*def)
		if len(models) == 0 {
			continue
		}
		missing := judgesMissing(e.req.Judges, e.req.Agents, models, e.opts.Variables)
		if used = used || missing == ""; missing != "" && def.NotRun == "" {
			def.NotRun = missing
		}
		if def.NotRun == "" {
			warnOfOwnModels(r, def.ID, models, e.req.Agents)
		}
	}
	models := e.req.Mocks.Models()
	if !used && len(models) == 0 {
		e.req.Judges = nil // nothing of it is stored
		return nil
	}
	return mocksMissing(e.req.Judges, models, e.opts.Variables)
}

// mocksMissing is the error that a model cannot be asked that writes results of calls.
func mocksMissing(c *judge.Config, models []string, v Variables) error {
	for _, model := range models {
		if missing := c.Missing(model, "", v.resolve); missing != "" {
			return inputError("mocks: a model writes results of calls, and it is asked as judges are: %s", missing)
		}
	}
	return nil
}

// warnOfOwnModels warns of judges that are the model of the agent that they judge. An empty name is
// the agent's own model.
func warnOfOwnModels(r *input.Reader, evaluator string, models []string, agents []agent.Entry) {
	for _, a := range agents {
		own := plans.ModelOf(a)
		for _, model := range models {
			if own != "" && (model == own || model == "" || model == eval.SameAsAgent) {
				r.Problems = append(r.Problems, input.Problem{Warning: true, Message: fmt.Sprintf(
					"the evaluator %s judges the agent %s by its own model, %s; models tend to prefer what they have written themselves, so that another one is a fairer judge",
					evaluator, a.Name, own)})
				break
			}
		}
	}
}

// judgesMissing returns why these models can judge none of the agents' rollouts. A judge of several
// models needs them all.
func judgesMissing(c *judge.Config, agents []agent.Entry, models []string, v Variables) (missing string) {
	for _, a := range agents {
		missing = ""
		for _, model := range models {
			missing = cmp.Or(missing, c.Missing(model, plans.ModelOf(a), v.resolve))
		}
		if missing == "" {
			return ""
		}
	}
	return missing
}

// checkJudges returns an error if a judge lacks its key, so that no verdict is lost.
func (v Variables) checkJudges(plan plans.Plan) error {
	if plan.Judges == nil {
		return nil
	}
	for _, def := range plan.Set.Evaluators {
		models := kinds.All.JudgeModels(def)
		if def.NotRun != "" || len(models) == 0 {
			continue
		}
		if missing := judgesMissing(plan.Judges, plan.Agents, models, v); missing != "" {
			return inputError("the evaluator %s: %s", def.ID, missing)
		}
	}
	return mocksMissing(plan.Judges, plan.Mocks.Models(), v)
}

// chooseJudges finds the models that the evaluators of a rescoring ask. An evaluator that was not
// run for want of a model is run if there is one now. It is an error if a model is gone: the
// earlier verdicts of that judge would be lost.
func (r *rescoring) chooseJudges(config *judge.Config, o ScoreOptions) error {
	var c judge.Config
	if config == nil {
		c = judge.ParseConfig(&input.Reader{}, nil) // the config of the environment
	} else {
		c = *config
	}
	c.Model = cmp.Or(o.JudgeModel, c.Model, os.Getenv(judgeModelVar))
	c.NoCache = o.NoJudgeCache
	if c.Prices == nil {
		c.Prices = r.plan.Set.Prices
	}
	r.with.Evaluators = slices.Clone(r.with.Evaluators)
	for i := range r.with.Evaluators {
		def := &r.with.Evaluators[i]
		models := kinds.All.JudgeModels(*def)
		if len(models) == 0 {
			continue
		}
		missing := ""
		for _, a := range r.plan.Agents {
			for _, model := range models {
				if missing = c.Missing(model, plans.ModelOf(a), o.Variables.resolve); missing == "" {
					break
				}
			}
		}
		switch {
		case missing == "":
			def.NotRun, r.with.Judges = "", &c
		case def.NotRun == "":
			return inputError("the evaluator %s: %s", def.ID, missing)
		}
	}
	plan := r.plan
	plan.Judges = r.with.Judges
	r.red = o.Variables.Redactor(plan)
	return nil
}

// judges returns the models that the evaluators of a rescoring ask.
func (r *rescoring) judges(plan plans.Plan, o ScoreOptions) *judge.Judges {
	models := map[string]string{}
	for _, a := range plan.Agents {
		models[a.Name] = plans.ModelOf(a)
	}
	return judge.New(judge.Options{
		Config: *plan.Judges, CacheDir: files.Of(r.st).JudgeCache(), AgentModels: models,
		Resolve: o.Variables.resolve, Redact: r.red,
		Spent: func(ctx context.Context) (judge.Spent, error) { return rollout.SpentOnJudges(ctx, r.st, r.runID) },
	})
}
