package uipath

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/evaluator"
	"github.com/evalrun/evalrun/eval/pyvalue"
	"github.com/evalrun/evalrun/eval/spans"
	"github.com/evalrun/evalrun/internal/input"
)

// The placeholders of UiPath's prompts.
const (
	actualOutput     = "{{ActualOutput}}"
	expectedOutputs  = "{{ExpectedOutput}}"
	agentRunHistory  = "{{AgentRunHistory}}"
	expectedBehavior = "{{ExpectedAgentBehavior}}"
	agentInput       = "{{UserOrSyntheticInput}}"
	simulation       = "{{SimulationInstructions}}"
)

// submitEvaluation is the tool that UiPath's judges call, as its package defines it.
var submitEvaluation = eval.Tool{
	Name:        "submit_evaluation",
	Description: "Submit the evaluation score and justification for the agent output",
	Schema: json.RawMessage(`{"type":"object","properties":{` +
		`"justification":{"type":"string","description":"Clear analysis of the evaluation explaining the reasoning behind the score"},` +
		`"score":{"type":"number","description":"Numeric score between 0 and 100 representing the evaluation result"}},` +
		`"required":["justification","score"]}`),
}

// submitted holds the arguments with which a judge of UiPath's has called the tool.
type submitted struct {
	score         float64 // from 0 to 100
	justification string
}

// readSubmitted reads the arguments of submit_evaluation. A score may be a number or a number in a
// string. One that is not from 0 to 100 is refused, as UiPath's legacy judges do.
func readSubmitted(arguments json.RawMessage) (out submitted, err error) {
	v, err := pyvalue.Parse(arguments)
	if err != nil {
		return out, fmt.Errorf("its arguments are %w", err)
	}
	o, ok := v.(*pyvalue.Object)
	if !ok {
		return out, fmt.Errorf("its arguments are %s, expected an object", pyvalue.KindOf(v))
	}
	switch score := o.Values["score"].(type) {
	case pyvalue.Number:
		out.score = score.Float
	case string:
		if out.score, err = strconv.ParseFloat(strings.TrimSpace(score), 64); err != nil {
			return out, fmt.Errorf("score: expected a number, got %q", score)
		}
	default:
		return out, fmt.Errorf("score: expected a number, got %s", pyvalue.KindOf(o.Values["score"]))
	}
	if !(out.score >= 0 && out.score <= 100) { // NaN is neither
		return out, fmt.Errorf("score: expected a number from 0 to 100, got %v", out.score)
	}
	justification, ok := o.Values["justification"]
	if !ok {
		return out, errors.New("justification is missing")
	}
	out.justification = pyvalue.Str(justification)
	return out, nil
}

// roundedShare is Python's max(0, min(1, round(score / 100, 2))).
func roundedShare(score float64) float64 {
	share, _ := strconv.ParseFloat(strconv.FormatFloat(score/100, 'f', 2, 64), 64) // it is a number
	return math.Max(0, math.Min(1, share))
}

// uipathJudge is the common part of the judges of UiPath's formats.
type uipathJudge struct {
	id             string
	model          string
	system, prompt string
	temperature    *float64
	maxTokens      int
	legacy         bool
}

// judgeKeys are the keys of UiPath's judges.
var judgeKeys = []evaluator.Key{
	{Name: "model", Kind: input.String,
		About: "the model that judges; without one, or with `same-as-agent`, as [judges.md](judges.md) says"},
	{Name: "prompt", Kind: input.String, About: "what the judge is asked, instead of evalrun's own words"},
	{Name: "temperature", Kind: input.Number, Otherwise: 0.0, Least: 0, Most: 2, About: "of the model"},
	{Name: "maxTokens", Kind: input.Number, Whole: true, Least: 1, Most: 1<<31 - 1,
		About: "how long its answer may be"},
}

// readJudge reads the keys of a judge. If it has no prompt, it gets that of its kind. The
// placeholders of the actual and the expected are appended if the prompt lacks them.
func readJudge(e *evaluator.Evaluator, c *evaluator.Config, kind judgeTexts, actual, expected string) *uipathJudge {
	zero := 0.0
	j := &uipathJudge{id: e.Def.ID, system: kind.system, prompt: c.String("prompt"), model: c.String("model"),
		maxTokens: c.Int("maxTokens"), temperature: &zero}
	if j.prompt == "" {
		j.prompt = kind.prompt
	}
	if c.Has("temperature") {
		t := c.Float("temperature")
		j.temperature = &t
	}
	for _, needs := range []string{"claude-haiku-4-5", "claude-sonnet-4-5"} {
		if j.maxTokens == 0 && strings.Contains(j.model, needs) {
			j.maxTokens = 8000
		}
	}
	j.complete(actual, expected)
	return j
}

// complete appends the missing placeholders to the prompt. The headings are the same for judges of
// trajectories, as they are for UiPath.
func (j *uipathJudge) complete(actual, expected string) {
	prompt := j.prompt
	if !strings.Contains(prompt, actual) {
		j.prompt += "\n\n## Actual Output\n<ActualOutput>\n" + actual + "\n</ActualOutput>"
	}
	if !strings.Contains(prompt, expected) {
		j.prompt += "\n\n## Expected Output\n<ExpectedOutput>\n" + expected + "\n</ExpectedOutput>"
	}
}

// ask fills the prompt with pairs of placeholders and values, in one pass: a value that holds a
// placeholder stays as it is. sample tells the questions about the lines of one output apart.
func (j *uipathJudge) ask(
	ctx context.Context, s eval.Subject, sample int, pairs ...string,
) (submitted, evaluator.Outcome) {
	if s.Judge == nil {
		return submitted{}, evaluator.NoModel()
	}
	q := eval.Question{EvaluatorID: j.id, Sample: sample, Model: j.model, System: j.system,
		Prompt: strings.NewReplacer(pairs...).Replace(j.prompt), Tool: submitEvaluation,
		Temperature: j.temperature, MaxTokens: j.maxTokens, TemplateHash: evaluator.Hash(j.system, j.prompt),
		Check: func(arguments json.RawMessage) error {
			_, err := readSubmitted(arguments)
			return err
		}}
	answer, err := s.Judge.Ask(ctx, q)
	var notAsked *eval.NotAsked
	if errors.As(err, &notAsked) {
		return submitted{}, evaluator.Outcome{Failure: err}
	}
	call := answer.Call
	var got submitted
	if err == nil {
		got, err = readSubmitted(answer.Arguments)
	}
	out := evaluator.Outcome{Judged: &eval.Judged{Reduce: "mean", Fingerprint: evaluator.Fingerprint(q, call.Model)}}
	if err != nil {
		out.Failure = err
		call.Error, call.ErrorCategory = evaluator.MessageOf(err)
	} else {
		out.Score = roundedShare(got.score)
		if j.legacy {
			out.Score = got.score / legacyScale
		}
		score, zero, one := out.Score, 0.0, 1.0
		call.Score, out.Judged.Spread, out.Judged.Agreement = &score, &zero, &one
	}
	out.Judged.Verdicts = []eval.JudgeCall{call}
	return got, out
}

// outputJudge asks a model how similar the output is to the expected one.
func outputJudge(kind judgeTexts, about string) evaluator.Kind {
	read := func(e *evaluator.Evaluator, c *evaluator.Config) {
		o := readOutput(c)
		j := readJudge(e, c, kind, actualOutput, expectedOutputs)
		e.ExpectsOutput = true
		e.Score = func(ctx context.Context, s eval.Subject, criteria *pyvalue.Object) evaluator.Outcome {
			one, asked := *o, 0
			// for each line, if it goes by lines
			one.compare = func(ctx context.Context, expected, actual any) evaluator.Outcome {
				got, out := j.ask(ctx, s, asked, actualOutput, pyvalue.Str(actual), expectedOutputs,
					pyvalue.Str(expected))
				asked++
				out.Details = judgeDetails{pyvalue.Str(expected), pyvalue.Str(actual), got.justification}
				return out
			}
			return one.score(ctx, s, criteria)
		}
	}
	return evaluator.Kind{Read: read, AsksModels: true,
		About: about, Keys: slices.Concat(judgeKeys, outputKeys),
		Criteria: []evaluator.Key{evaluator.ExpectedOutputKey}}
}

// judgeDetails are the details of UiPath's current judges.
type judgeDetails struct {
	Expected      string `json:"expected"`
	Actual        string `json:"actual"`
	Justification string `json:"justification"`
}

// trajectoryJudge asks a model how the agent did its work.
func trajectoryJudge(kind judgeTexts, about string) evaluator.Kind {
	read := func(e *evaluator.Evaluator, c *evaluator.Config) {
		c.Ignore("targetOutputKey")
		j := readJudge(e, c, kind, agentRunHistory, expectedBehavior)
		e.Score = func(ctx context.Context, s eval.Subject, criteria *pyvalue.Object) evaluator.Outcome {
			v, ok := criteria.Get("expectedAgentBehavior", "expected_agent_behavior")
			if !ok {
				return evaluator.Failed("criteria: expectedAgentBehavior is missing")
			}
			inputs, err := pyvalue.Parse(s.Evaluation.Inputs)
			if err != nil {
				return evaluator.Failed("inputs: %w", err)
			}
			history := spans.History(s.Trace)
			got, out := j.ask(ctx, s, 0, agentRunHistory, history, expectedBehavior, pyvalue.Str(v), agentInput,
				pyvalue.Str(inputs), simulation, "")
			out.Details = judgeDetails{pyvalue.Str(v), history, got.justification}
			return out
		}
	}
	return evaluator.Kind{Read: read, AsksModels: true, About: about, Keys: judgeKeys, Criteria: []evaluator.Key{
		{Name: "expectedAgentBehavior", Required: true, About: "what the agent should have done, in words"}}}
}

// legacyPromptKeys are the keys of legacy judges.
var legacyPromptKeys = []evaluator.Key{
	{Name: "prompt", Kind: input.String, Required: true,
		About: "what the judge is asked, with `{{ActualOutput}}` and `{{ExpectedOutput}}`, or of a trajectory " +
			"`{{AgentRunHistory}}` and `{{ExpectedAgentBehavior}}`"},
	{Name: "model", Kind: input.String, About: "the model that judges"},
}

var legacyJudgeType = evaluator.Kind{
	AsksModels: true,
	Read:       legacyOutputJudge,
	About:      "UiPath's legacy category 1: asks a model how like the output is to the expected one.",
	Keys:       slices.Concat(legacyPromptKeys, legacyKeys),
	Criteria:   []evaluator.Key{evaluator.ExpectedOutputKey},
}

var legacyTrajectoryType = evaluator.Kind{
	AsksModels: true,
	Read:       legacyTrajectoryJudge,
	About: "UiPath's legacy category 3: asks a model whether the agent's tool calls are the evaluation's " +
		"`expectedAgentBehavior`.",
	Keys: slices.Concat(legacyPromptKeys, legacyKeys),
}

// legacyOutputJudge is UiPath's legacy category 1: the prompt is the file's own, and the score is
// from 0 to 100 as the model gives it. It ignores a path that is missing, and does not tell lines
// apart.
func legacyOutputJudge(e *evaluator.Evaluator, c *evaluator.Config) {
	l := readLegacy(e, c)
	j := readLegacyJudge(e, c)
	j.complete(actualOutput, expectedOutputs)
	e.Score = func(ctx context.Context, s eval.Subject, criteria *pyvalue.Object) evaluator.Outcome {
		expected, actual, err := sides(s, criteria)
		if err != nil {
			return evaluator.Outcome{Err: err}
		}
		if part, err := pyvalue.Resolve(expected, l.path); err == nil {
			expected = part
		}
		if part, err := pyvalue.Resolve(actual, l.path); err == nil {
			actual = part
		}
		if isEmptyExpectation(expected) {
			return evaluator.Failed("EMPTY_EXPECTED_OUTPUT: the evaluation expects an output that is not empty")
		}
		got, out := j.ask(ctx, s, 0, actualOutput, pyvalue.Str(actual), expectedOutputs, pyvalue.Str(expected))
		out.Details = got.justification
		return out
	}
}

// legacyTrajectoryJudge is UiPath's legacy category 3.
func legacyTrajectoryJudge(e *evaluator.Evaluator, c *evaluator.Config) {
	readLegacy(e, c)
	j := readLegacyJudge(e, c)
	for _, placeholder := range []string{expectedBehavior, agentRunHistory} {
		if n := c.Get("prompt"); n != nil && n.Kind == input.String && !strings.Contains(n.Text, placeholder) {
			c.Errorf(n, "expected the placeholder %s in the prompt", placeholder)
		}
	}
	e.Score = func(ctx context.Context, s eval.Subject, _ *pyvalue.Object) evaluator.Outcome {
		behaviour := s.Evaluation.ExpectedAgentBehavior
		if strings.TrimSpace(behaviour) == "" {
			return evaluator.Failed("EMPTY_EXPECTED_AGENT_BEHAVIOR: the evaluation expects a behaviour that is " +
				"not empty")
		}
		got, out := j.ask(ctx, s, 0, expectedBehavior, behaviour, agentRunHistory, spans.History(s.Trace))
		out.Details = got.justification
		return out
	}
}

func readLegacyJudge(e *evaluator.Evaluator, c *evaluator.Config) *uipathJudge {
	return &uipathJudge{id: e.Def.ID, model: c.String("model"), prompt: c.String("prompt"), legacy: true}
}

// isEmptyExpectation reports whether UiPath takes an expectation for empty.
func isEmptyExpectation(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case string:
		return strings.TrimSpace(v) == ""
	case []any:
		return len(v) == 0
	case *pyvalue.Object:
		for _, value := range v.Values {
			if text, ok := value.(string); !ok || strings.TrimSpace(text) != "" {
				return false
			}
		}
		return true
	}
	return false
}
