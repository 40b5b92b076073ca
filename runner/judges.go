package runner

import (
	"cmp"
	"os"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/judge"
	"github.com/evalrun/evalrun/internal/plans"
)

// judgeModelVar names the model of judges that are to be the agent's own, where --judge-model does
// not.
const judgeModelVar = "EVALRUN_JUDGE_MODEL"

// readJudges reads what the set says of judges, and what the options say in its place.
func (e *EvalSet) readJudges(r *input.Reader) {
	set := e.req.Set
	c := judge.ParseConfig(r, set.Judges)
	switch catalog := e.opts.Catalog; {
	case set.Judges != nil:
	case catalog != nil && catalog.Judges != nil:
		c = *catalog.Judges
	case e.opts.Upload != nil:
		c = judge.Config{} // the keys of the service are not for whoever uploads
	}
	c.Model = cmp.Or(e.opts.JudgeModel, c.Model, os.Getenv(judgeModelVar))
	c.NoCache = e.opts.NoJudgeCache
	if c.Prices == nil {
		c.Prices = set.Prices
	}
	e.req.Judges = &c
}

// chooseJudges notes of evaluators that ask models why they cannot be run, if no agent's rollouts
// can be judged by them. A set without such evaluators needs nothing of all this.
func (e *EvalSet) chooseJudges() {
	set, used := e.req.Set, false
	for i := range set.Evaluators {
		def := &set.Evaluators[i]
		models := def.JudgeModels()
		if len(models) == 0 {
			continue
		}
		missing := judgesMissing(e.req.Judges, e.req.Agents, models, e.opts.Variables)
		if used = used || missing == ""; missing != "" && def.NotRun == "" {
			def.NotRun = missing
		}
	}
	if !used {
		e.req.Judges = nil // nothing of it is stored
	}
}

// judgesMissing says why none of the agents' rollouts can be judged by these models; a judge of
// several models needs them all.
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

// checkJudges makes sure that no verdict is lost because a judge was not given its key.
func (v Variables) checkJudges(plan plans.Plan) error {
	if plan.Judges == nil {
		return nil
	}
	for _, def := range plan.Set.Evaluators {
		models := def.JudgeModels()
		if def.NotRun != "" || len(models) == 0 {
			continue
		}
		if missing := judgesMissing(plan.Judges, plan.Agents, models, v); missing != "" {
			return inputError("the evaluator %s: %s", def.ID, missing)
		}
	}
	return nil
}
