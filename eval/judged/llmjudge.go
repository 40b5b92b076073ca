package judged

import (
	"context"
	"encoding/json"
	"slices"
	"sync"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/evaluator"
	"github.com/evalrun/evalrun/eval/pyvalue"
	"github.com/evalrun/evalrun/internal/input"
)

// TypeLLMJudge is evalrun's own judge.
const TypeLLMJudge = "llm-judge"

var llmJudgeType = evaluator.Kind{
	AsksModels: true,
	Read:       readLLMJudge,
	About:      "Asks one or more models what your prompt asks: [judges.md](judges.md).",
	Keys: []evaluator.Key{
		{Name: "prompt", Kind: input.String,
			About: "what is asked; it is required without `template`. With `{{input}}`, `{{output}}`, `{{expected}}`, `{{history}}` (the tool calls), " +
				"`{{criteria.NAME}}` and `{{workspace.FILE}}`"},
		templateKey, systemKey, answerKey,
		{Name: "range", Kind: input.Array, Otherwise: []float64{0, 1}, About: "the worst and the best score"},
		labelsKey, passingKey, judgesKey,
		{Name: "samples", Kind: input.Number, Whole: true, Otherwise: 1, Least: 1, Most: 100,
			About: "how often each model is asked"},
		reduceKey, quorumKey, unknownKey,
	},
}

func readLLMJudge(e *evaluator.Evaluator, c *evaluator.Config) {
	const most = 1e9
	j := &llmJudge{id: e.Def.ID, system: c.String("system"), answer: c.String("answer"),
		low: 0, high: 1, samples: c.Int("samples"), quorum: c.Float("quorum"), unknown: c.Bool("unknown")}
	j.prompt = readPrompt(c)
	if n := c.Optional("range", input.Array); n != nil {
		var bounds []float64
		if json.Unmarshal(n.JSON(), &bounds) != nil || len(bounds) != 2 || bounds[0] >= bounds[1] ||
			max(-bounds[0], bounds[1]) > most {
			c.Errorf(n, "expected two numbers, the worst and the best score, such as [1, 5]")
		} else {
			j.low, j.high = bounds[0], bounds[1]
		}
	}
	j.readLabels(c)
	j.readModels(c)
	if j.reduce = c.String("reduce"); j.reduce == "" {
		j.reduce = usualReduce(j.answer)
	}
	if n := c.Get("reduce"); j.answer == answerScore && j.reduce == reduceMajority {
		c.Errorf(n, "expected mean or median: scores have no majority")
	} else if j.answer == answerLabels && j.reduce != reduceMajority {
		c.Errorf(n, "expected majority: labels have no %s", j.reduce)
	}
	j.tool = j.makeTool()
	j.templateHash = evaluator.Hash(j.system, j.prompt.text)
	e.ExpectsOutput, e.CriteriaOptional = true, true
	e.Score = j.score
}

// usualReduce says how answers become one unless an evaluator says it.
func usualReduce(answer string) string {
	if answer == answerScore {
		return reduceMean
	}
	return reduceMajority
}

func (j *llmJudge) readLabels(c *evaluator.Config) {
	j.labels, j.passing = c.Strings("labels"), c.Strings("passingLabels")
	switch {
	case j.answer != answerLabels:
		for _, key := range []string{"labels", "passingLabels"} {
			if n := c.Get(key); n != nil {
				c.Errorf(n, `only a judge with "answer": "labels" has labels`)
			}
		}
	case len(j.labels) < 2:
		c.Errorf(c.Node, "labels: expected at least two")
	case len(j.passing) == 0:
		c.Errorf(c.Node, "passingLabels: expected those of the labels that pass")
	}
	for _, label := range j.passing {
		if j.answer == answerLabels && !slices.Contains(j.labels, label) {
			c.Errorf(c.Get("passingLabels"), "%q is none of the labels%s", label, input.Suggest(label, j.labels))
		}
	}
}

// score asks all judges for all their samples, at once, and reduces their answers.
func (j *llmJudge) score(ctx context.Context, s eval.Subject, criteria *pyvalue.Object) evaluator.Outcome {
	if s.Judge == nil {
		return evaluator.NoModel()
	}
	prompt, err := j.prompt.fill(s, criteria, nil)
	if err != nil {
		return evaluator.Outcome{Failure: err}
	}
	p := &panel{judge: j, asked: make([]asked, len(j.judges)*j.samples)}
	var asking sync.WaitGroup
	for i := range p.asked {
		m := j.judges[i/j.samples]
		asking.Go(func() {
			p.asked[i] = j.ask(ctx, s,
				eval.Question{EvaluatorID: j.id, Sample: i, Model: m.model, System: j.system, Prompt: prompt,
					Tool: j.tool, Temperature: m.temperature,
					Seed: m.seed, MaxTokens: m.maxTokens, TemplateHash: j.templateHash})
			p.asked[i].weight = m.weight
		})
	}
	asking.Wait()
	return p.outcome()
}
