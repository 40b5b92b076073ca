package judged

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/evaluator"
	"github.com/evalrun/evalrun/eval/pyvalue"
	"github.com/evalrun/evalrun/eval/stats"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/jsonobj"
)

// TypeHuman is the type of the evaluator that asks raters, and waits for them.
const TypeHuman = "human"

const maxRaters = 100

// humans asks people. Every one of them is needed.
type humans struct {
	id               string
	question, rubric string
	answer           string
	labels, passing  []string
	raters           int
	assignees        []string
	reduce           string
	blind            bool
}

var humanType = evaluator.Kind{
	KeysBeside: true,
	Read:       human,
	About:      "Asks people, and waits for their answers: [evalsets.md](evalsets.md#evaluators).",
	Keys: []evaluator.Key{
		{Name: "question", Kind: input.String, Required: true, About: "what raters are asked"},
		{Name: "rubric", Kind: input.String, About: "how to judge"},
		answerKey, labelsKey, passingKey,
		{Name: "raters", Kind: input.Number, Whole: true, Otherwise: 1, Least: 1, Most: maxRaters,
			About: "how many people; all of them are needed"},
		{Name: "assignees", Kind: input.Array, About: "a name for each rater; it is shown, but anybody may answer"},
		reduceKey,
		{Name: "blind", Kind: input.Bool, Otherwise: true,
			About: "raters see neither the agent nor what other evaluators say; if false, they are asked last"},
	},
}

// human is an evaluator that asks people.
func human(e *evaluator.Evaluator, c *evaluator.Config) {
	h := readHumans(e, c)
	e.CriteriaOptional, e.Nominal = true, h.answer != answerScore
	e.Score = func(_ context.Context, s eval.Subject, criteria *pyvalue.Object) evaluator.Outcome {
		return h.ask(s, criteria)
	}
	e.Continue = func(_ context.Context, _ eval.Subject, _ *pyvalue.Object,
		deliveries map[string]eval.Delivery) evaluator.Outcome {
		return h.rate(deliveries)
	}
}

func readHumans(e *evaluator.Evaluator, c *evaluator.Config) *humans {
	h := &humans{id: e.Def.ID, question: c.String("question"), rubric: c.String("rubric"),
		answer: c.String("answer"),
		labels: c.Strings("labels"), passing: c.Strings("passingLabels"), assignees: c.Strings("assignees"),
		raters: c.Int("raters"), blind: c.Bool("blind")}
	if h.answer == answerScore {
		h.reduce = c.Enum("reduce", reduceMean, reduceMean, reduceMedian)
	} else {
		h.reduce = c.Enum("reduce", reduceMajority, reduceMajority)
	}
	h.check(c)
	return h
}

// humansOf returns the people of a definition. The error is about its configuration.
func humansOf(def eval.Definition) (h *humans, err error) {
	kind := humanType
	kind.Read = func(e *evaluator.Evaluator, c *evaluator.Config) { h = readHumans(e, c) }
	_, err = evaluator.Kinds{TypeHuman: kind}.New(def)
	return h, err
}

func (h *humans) check(c *evaluator.Config) {
	if n := c.Get("labels"); h.answer == answerLabels && len(h.labels) < 2 {
		c.Errorf(either(n, c.Node), "expected at least two labels")
	} else if h.answer != answerLabels && n != nil {
		c.Errorf(n, `labels are of "answer": "labels"`)
	}
	n := c.Get("passingLabels")
	switch {
	case h.answer != answerLabels:
		if n != nil {
			c.Errorf(n, `passingLabels are of "answer": "labels"`)
		}
	case len(h.passing) == 0:
		c.Errorf(either(n, c.Node), "expected at least one of the labels in passingLabels")
	default:
		for _, label := range h.passing {
			if !slices.Contains(h.labels, label) {
				c.Errorf(n, "expected labels, got %q%s", label, input.Suggest(label, h.labels))
			}
		}
	}
	if n := c.Get("assignees"); len(h.assignees) > 0 && len(h.assignees) != h.raters {
		c.Errorf(n, "expected as many assignees as raters (%d), got %d", h.raters, len(h.assignees))
	}
}

func either(n, otherwise *input.Node) *input.Node {
	if n != nil {
		return n
	}
	return otherwise
}

// shown is the document that a rater sees.
type shown struct {
	Question string          `json:"question"`
	Rubric   string          `json:"rubric,omitempty"`
	Answer   string          `json:"answer"`
	Labels   []string        `json:"labels,omitempty"`
	Rater    int             `json:"rater"`
	Raters   int             `json:"raters"`
	Inputs   json.RawMessage `json:"inputs,omitempty"`
	Output   json.RawMessage `json:"output"`
	Expected any             `json:"expected,omitempty"`
	// Files are those that the agent has left. MoreFiles says that there are others.
	Files     []shownFile `json:"files,omitempty"`
	MoreFiles bool        `json:"moreFiles,omitempty"`
	// Agent and Verdicts are hidden from blind raters.
	Agent    string            `json:"agent,omitempty"`
	Verdicts []humanSeenResult `json:"verdicts,omitempty"`
}

type humanSeenResult struct {
	Evaluator string   `json:"evaluator"`
	Score     *float64 `json:"score"`
	Error     string   `json:"error,omitempty"`
}

// ask makes one interrupt for each rater: a task for a person, in UiPath's shape.
func (h *humans) ask(s eval.Subject, criteria *pyvalue.Object) evaluator.Outcome {
	what := shown{Question: h.question, Rubric: h.rubric, Answer: h.answer, Labels: h.labels, Raters: h.raters,
		Inputs: s.Evaluation.Inputs, Output: s.Output}
	if expected, ok := criteria.Get("expectedOutput", "expected_output"); ok {
		what.Expected = expected
	} else if len(s.Evaluation.ExpectedOutput) > 0 {
		what.Expected = s.Evaluation.ExpectedOutput
	}
	var err error
	if what.Files, what.MoreFiles, err = filesOf(s.Workspace); err != nil {
		return evaluator.Outcome{Failure: err}
	}
	if !h.blind {
		what.Agent = s.Agent
		for _, r := range s.Results {
			if !r.Line {
				what.Verdicts = append(what.Verdicts, humanSeenResult{r.EvaluatorName, r.Normalized(), r.Error})
			}
		}
	}
	type task struct {
		Type     string `json:"type"`
		Title    string `json:"title"`
		Assignee string `json:"assignee,omitempty"`
		Data     shown  `json:"data"`
	}
	type interrupt struct {
		ID    string `json:"id"`
		Value task   `json:"value"`
	}
	var out []interrupt
	for i := range h.raters {
		what.Rater = i + 1
		one := interrupt{raterID(i), task{Type: "CreateTask", Title: h.question, Data: what}}
		if len(h.assignees) > 0 {
			one.Value.Assignee = h.assignees[i]
		}
		out = append(out, one)
	}
	wait, err := jsonobj.Marshal(out)
	if err != nil {
		return evaluator.Outcome{Failure: err}
	}
	return evaluator.Outcome{Wait: wait}
}

func raterID(i int) string { return "rater-" + strconv.Itoa(i+1) }

// rate makes one score of the ratings.
func (h *humans) rate(deliveries map[string]eval.Delivery) evaluator.Outcome {
	if err := evaluator.Undelivered(deliveries); err != nil {
		return evaluator.Outcome{Failure: err}
	}
	var ratings []eval.Rating
	for i := range h.raters {
		d, ok := deliveries[raterID(i)]
		if !ok {
			return evaluator.Broken("nothing was delivered for %s", raterID(i))
		}
		r, err := h.read(d.Payload)
		if err != nil { // the answer came before it could be checked
			return evaluator.Broken("%s: %w", raterID(i), err)
		}
		r.At = d.ReceivedAt
		ratings = append(ratings, r)
	}
	score, ok := h.reduced(ratings)
	if !ok {
		return evaluator.Outcome{Failure: fmt.Errorf("the %d raters have no majority", h.raters), Ratings: ratings}
	}
	return evaluator.Outcome{Score: score, Ratings: ratings}
}

// reduced returns the score of all ratings together. For labels it is the score of the label that
// more than half of them have.
func (h *humans) reduced(ratings []eval.Rating) (score float64, ok bool) {
	scores := make([]float64, len(ratings))
	votes := map[string]int{}
	for i, r := range ratings {
		scores[i] = r.Score
		votes[voteOf(r)]++
	}
	switch h.reduce {
	case reduceMean:
		return stats.Mean(scores), true
	case reduceMedian:
		slices.Sort(scores)
		return (scores[(len(scores)-1)/2] + scores[len(scores)/2]) / 2, true
	}
	for _, r := range ratings {
		if 2*votes[voteOf(r)] > len(ratings) {
			return r.Score, true
		}
	}
	return 0, false
}

// voteOf returns the value in which raters agree if it is the same.
func voteOf(r eval.Rating) string {
	if r.Label != "" {
		return r.Label
	}
	return strconv.FormatFloat(r.Score, 'g', -1, 64)
}

// CheckAnswer returns an error that says what is wrong with an answer for an evaluator of this
// definition; nil if the evaluator takes it.
func CheckAnswer(def eval.Definition, payload json.RawMessage) error {
	if def.Type != TypeHuman {
		return nil
	}
	h, err := humansOf(def)
	if err != nil {
		return err
	}
	_, err = h.read(payload)
	return err
}

// NewAnswer makes an answer from the input of a rater, for an evaluator of this definition.
func NewAnswer(def eval.Definition, value, reason, rater string) (json.RawMessage, error) {
	if def.Type != TypeHuman {
		return nil, fmt.Errorf("the evaluator %s is no person; deliver a payload", def.ID)
	}
	h, err := humansOf(def)
	if err != nil {
		return nil, err
	}
	answer := map[string]any{}
	switch h.answer {
	case answerLabels:
		answer["label"] = value
	case answerBoolean:
		answer["pass"] = value
		if pass, ok := map[string]bool{"pass": true, "fail": false, "true": true, "false": false, "yes": true,
			"no": false, "1": true, "0": false}[strings.ToLower(value)]; ok {
			answer["pass"] = pass
		}
	default:
		answer["score"] = value
		if score, err := strconv.ParseFloat(value, 64); err == nil && !math.IsNaN(score) && !math.IsInf(score, 0) {
			answer["score"] = score
		}
	}
	if reason != "" {
		answer["justification"] = reason
	}
	if rater != "" {
		answer["rater"] = rater
	}
	payload, err := jsonobj.Marshal(answer)
	if err != nil {
		return nil, err
	}
	_, err = h.read(payload)
	return payload, err
}

// read reads an answer: an object with score, pass or label, as the evaluator wants it, or with
// approved, which approve and deny send.
func (h *humans) read(payload json.RawMessage) (r eval.Rating, err error) {
	v, err := pyvalue.Parse(payload)
	if err != nil {
		return r, err
	}
	o, ok := v.(*pyvalue.Object)
	if !ok {
		return r, fmt.Errorf("expected %s, got %s", h.expects(), pyvalue.KindOf(v))
	}
	text := func(names ...string) string {
		v, _ := o.Get(names...)
		s, _ := v.(string)
		return s
	}
	r.Justification, r.Rater = text("justification", "reason"), text("rater")
	if approved, ok := o.Values["approved"].(bool); ok && h.answer != answerLabels {
		r.Score = pyvalue.Truth(approved)
		return r, nil
	}
	switch h.answer {
	case answerLabels:
		if r.Label = text("label"); !slices.Contains(h.labels, r.Label) {
			return r, fmt.Errorf("expected %s, got %s%s", h.expects(), payload, input.Suggest(r.Label, h.labels))
		}
		r.Score = pyvalue.Truth(slices.Contains(h.passing, r.Label))
	case answerBoolean:
		pass, ok := o.Values["pass"].(bool)
		if !ok {
			return r, fmt.Errorf("expected %s, got %s", h.expects(), payload)
		}
		r.Score = pyvalue.Truth(pass)
	default:
		score, ok := o.Values["score"].(pyvalue.Number)
		if !ok || !(score.Float >= 0 && score.Float <= 1) { // NaN is neither
			return r, fmt.Errorf("expected %s, got %s", h.expects(), payload)
		}
		r.Score = score.Float
	}
	return r, nil
}

// expects describes a valid answer.
func (h *humans) expects() string {
	switch h.answer {
	case answerLabels:
		return `{"label": …} with one of ` + strings.Join(h.labels, ", ")
	case answerBoolean:
		return `{"pass": true} or {"pass": false}`
	}
	return `{"score": …} with a number from 0 to 1`
}
