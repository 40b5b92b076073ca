package eval

import (
	"bytes"
	"context"
	"encoding/json"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/evalrun/evalrun/internal/input"
)

// typePairwise is the judge that compares the output with the expected one, or with that of another
// run.
const typePairwise = "pairwise"

// What such a judge may say.
const (
	sideA = "A"
	sideB = "B"
	tie   = "tie"
)

// pairwisePrompt is what a pairwise judge is asked unless its evaluator says something else.
const pairwisePrompt = `An AI agent was given this:
{{input}}

Two answers:

A:
{{a}}

B:
{{b}}

Which one serves whoever asked better? Choose "tie" if neither does. Length, order and form do not count by themselves.`

var pairwiseType = evaluatorType{
	asksModels: true,
	read:       readPairwise,
	about: "Asks models twice which is better, the output or what it is compared with, each standing first once. 1 if it is better in both orders, " +
		"0 if worse in both, else 0.5.",
	keys: []key{
		{name: "prompt", kind: input.String, about: "what is asked, with `{{a}}` and `{{b}}`, the two answers, and what the prompt of an `llm-judge` may have"},
		systemKey,
		{name: "reference", otherwise: referenceExpected, about: "with what the output is compared: `expected`, or `{\"run\": ID, \"agent\": NAME}`, the outputs of another run"},
		judgesKey, quorumKey, unknownKey,
	},
}

// readPairwise reads a judge that is asked twice which of two answers is better, the agent's and the
// one that it is compared with, each standing first once.
func readPairwise(e *evaluator, c *config) {
	j := &llmJudge{id: e.def.ID, system: c.String("system"), prompt: judgeTemplate{pairwisePrompt}, answer: answerLabels,
		labels: []string{sideA, sideB, tie}, samples: 1, reduce: reduceMean, quorum: c.Float("quorum"), unknown: c.Bool("unknown"), pairs: true}
	if c.String("prompt") != "" {
		j.prompt = readJudgeTemplate(c.Reader, c.Get("prompt"), "a", "b")
		for _, place := range []string{"a", "b"} {
			if !j.prompt.has(place) {
				c.Errorf(c.Get("prompt"), "the prompt has no {{%s}}; expected {{a}} and {{b}}, the two answers that are compared", place)
			}
		}
	}
	reference := readReference(c)
	j.readModels(c)
	j.tool, j.templateHash = j.makeTool(), hashOf(j.system, j.prompt.text)
	e.expectsOutput, e.criteriaOptional = true, true
	e.score = func(ctx context.Context, s Subject, criteria *object) outcome {
		if s.Judge == nil {
			return outcome{failure: &NotAsked{"an LLM judge needs a model, and there is none here"}}
		}
		other, err := expectedOf(criteria)
		if reference != nil {
			other, err = referenceOf(s, j.id)
		}
		if err != nil {
			return outcome{failure: err}
		}
		return j.comparePair(ctx, s, criteria, other)
	}
}

// comparePair asks all judges about both orders, at once. A judge for whom the agent's answer is
// better in both gives 1, one for whom it is worse in both 0; a tie, or another choice when they are
// swapped, gives 0.5.
func (j *llmJudge) comparePair(ctx context.Context, s Subject, criteria *object, other comparedWith) outcome {
	output, reference := alike(s.Output), alike(other.output)
	var err error
	var prompts [2]string
	for i, sides := range []map[string]string{{"a": output, "b": reference}, {"a": reference, "b": output}} {
		if prompts[i], err = j.prompt.fill(s, criteria, sides); err != nil {
			return outcome{failure: err}
		}
	}
	said := make([]asked, 2*len(j.judges))
	var asking sync.WaitGroup
	for i := range said {
		m := j.judges[i/2]
		asking.Go(func() {
			said[i] = j.ask(ctx, s, Question{EvaluatorID: j.id, Sample: i, Model: m.model, System: j.system, Prompt: prompts[i%2], Tool: j.tool,
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

// alike is a JSON value as a judge is shown it that compares two: neither stands out by its indents
// and escapes.
func alike(raw json.RawMessage) string {
	value := jsontext.Value(bytes.Clone(raw))
	_ = value.Format(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) // else it stays as it is
	return jsonText(json.RawMessage(value))
}

// prefer makes a score of which side was chosen; swapped says that the agent's answer was B.
func (a *asked) prefer(swapped bool) {
	if !a.voted() {
		return
	}
	score := 0.5
	if a.label != tie {
		score = truth((a.label == sideA) != swapped)
	}
	a.score, a.call.Score = score, &score
}

// pairOf is one opinion of what a judge has said of both orders.
func pairOf(first, second asked, weight float64) asked {
	out := first
	out.weight, out.swapped, out.label = weight, []JudgeCall{second.call}, ""
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

// ComparesWith is the run with which an evaluator compares, as its configuration names it; nil if
// it compares with none.
func ComparesWith(def Definition) *ReferenceRun {
	if def.Type != typePairwise {
		return nil
	}
	var config struct {
		Reference json.RawMessage `json:"reference"`
	}
	var run *ReferenceRun
	_ = json.Unmarshal(def.Config, &config) // it has been checked
	if json.Unmarshal(config.Reference, &run) != nil {
		return nil // the expected output
	}
	return run
}
