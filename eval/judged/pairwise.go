package judged

import (
	"bytes"
	"context"
	"encoding/json"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/evaluator"
	"github.com/evalrun/evalrun/eval/pyvalue"
	"github.com/evalrun/evalrun/internal/input"
)

// TypePairwise is the judge that compares the output with the expected one, or with that of another
// run.
const TypePairwise = "pairwise"

// pairwisePrompt is the prompt of a pairwise judge, unless its evaluator has another.
const pairwisePrompt = `An AI agent was given this:
{{input}}

Two answers:

A:
{{a}}

B:
{{b}}

Which one serves whoever asked better? Choose "tie" if neither does. Length, order and form do not count by themselves.`

var pairwiseType = evaluator.Kind{
	AsksModels: true,
	Read:       readPairwise,
	About: "Asks models twice which is better, the output or what it is compared with, each standing first once. " +
		"1 if it is better in both orders, " +
		"0 if worse in both, else 0.5.",
	Keys: []evaluator.Key{
		{Name: "prompt", Kind: input.String,
			About: "what is asked, with `{{a}}` and `{{b}}`, the two answers, and what the prompt of an " +
				"`llm-judge` may have"},
		systemKey,
		{Name: "reference", Otherwise: referenceExpected,
			About: "with what the output is compared: `expected`, or `{\"run\": ID, \"agent\": NAME}`, the " +
				"outputs of another run"},
		judgesKey, quorumKey, unknownKey,
	},
}

// readPairwise reads a judge that is asked twice which of two answers is better, the agent's or the
// one that it is compared with. Each stands first once.
func readPairwise(e *evaluator.Evaluator, c *evaluator.Config) {
	j := &llmJudge{id: e.Def.ID, system: c.String("system"), prompt: judgeTemplate{pairwisePrompt},
		answer: answerLabels,
		labels: []string{eval.LabelA, eval.LabelB, eval.LabelTie}, samples: 1, reduce: reduceMean, quorum: c.Float("quorum"),
		unknown: c.Bool("unknown"), pairs: true}
	if c.String("prompt") != "" {
		j.prompt = readJudgeTemplate(c.Reader, c.Get("prompt"), "a", "b")
		for _, place := range []string{"a", "b"} {
			if !j.prompt.has(place) {
				c.Errorf(c.Get("prompt"),
					"the prompt has no {{%s}}; expected {{a}} and {{b}}, the two answers that are compared", place)
			}
		}
	}
	reference := readReference(c)
	j.readModels(c)
	j.tool, j.templateHash = j.makeTool(), evaluator.Hash(j.system, j.prompt.text)
	e.ExpectsOutput, e.CriteriaOptional, e.Pairs = true, true, true
	e.Score = func(ctx context.Context, s eval.Subject, criteria *pyvalue.Object) evaluator.Outcome {
		if s.Judge == nil {
			return evaluator.NoModel()
		}
		other, err := expectedOf(criteria)
		if reference != nil {
			other, err = referenceOf(s, j.id)
		}
		if err != nil {
			return evaluator.Outcome{Failure: err}
		}
		return j.comparePair(ctx, s, criteria, other)
	}
}

// comparePair asks all judges about both orders, at once. A judge who prefers the agent's answer in
// both gives 1, one who prefers the other in both gives 0; a tie, or another choice when they are
// swapped, gives 0.5.
func (j *llmJudge) comparePair(ctx context.Context, s eval.Subject, criteria *pyvalue.Object,
	other comparedWith) evaluator.Outcome {
	output, reference := alike(s.Output), alike(other.output)
	var err error
	var prompts [2]string
	for i, sides := range []map[string]string{{"a": output, "b": reference}, {"a": reference, "b": output}} {
		if prompts[i], err = j.prompt.fill(s, criteria, sides); err != nil {
			return evaluator.Outcome{Failure: err}
		}
	}
	said := make([]asked, 2*len(j.judges))
	var asking sync.WaitGroup
	for i := range said {
		m := j.judges[i/2]
		asking.Go(func() {
			said[i] = j.ask(ctx, s, eval.Question{EvaluatorID: j.id, Sample: i, Model: m.model, System: j.system,
				Prompt: prompts[i%2], Tool: j.tool,
				Temperature: m.temperature, Seed: m.seed, MaxTokens: m.maxTokens, TemplateHash: j.templateHash})
			said[i].prefer(i%2 == 1)
		})
	}
	asking.Wait()
	p := &panel{judge: j, reference: other.rolloutID}
	for i, m := range j.judges {
		p.asked = append(p.asked, pairOf(said[2*i], said[2*i+1], m.weight))
	}
	return p.outcome()
}

// alike formats a JSON value for a judge that compares two: neither stands out by its indents and
// escapes.
func alike(raw json.RawMessage) string {
	value := jsontext.Value(bytes.Clone(raw))
	_ = value.Format(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) // else it stays as it is
	return jsonText(json.RawMessage(value))
}

// prefer turns the chosen side into a score; swapped says that the agent's answer was B.
func (a *asked) prefer(swapped bool) {
	if !a.voted() {
		return
	}
	score := 0.5
	if a.label != eval.LabelTie {
		score = pyvalue.Truth((a.label == eval.LabelA) != swapped)
	}
	a.score, a.call.Score = score, &score
}

// pairOf makes one opinion of a judge's answers to both orders.
func pairOf(first, second asked, weight float64) asked {
	out := first
	out.weight, out.swapped, out.label = weight, []eval.JudgeCall{second.call}, ""
	if out.err == nil {
		out.err = second.err
	}
	out.unknown = first.unknown || second.unknown
	if out.voted() {
		out.consistent = first.score == second.score
		if !out.consistent {
			out.score = 0.5
		}
	}
	return out
}

// ComparesWith returns the run with which an evaluator compares, as its configuration names it; nil
// if it compares with none.
func ComparesWith(def eval.Definition) *eval.ReferenceRun {
	if def.Type != TypePairwise {
		return nil
	}
	var config struct {
		Reference json.RawMessage `json:"reference"`
	}
	var run *eval.ReferenceRun
	_ = json.Unmarshal(def.Config, &config) // it has been checked
	if json.Unmarshal(config.Reference, &run) != nil {
		return nil // the expected output
	}
	return run
}
