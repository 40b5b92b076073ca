package check

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/evaluator"
	"github.com/evalrun/evalrun/eval/pyvalue"
	"github.com/evalrun/evalrun/internal/input"
)

// TypeSimilar is the type of the evaluator that compares meanings by embeddings.
const TypeSimilar = "similar"

var similarType = evaluator.Kind{
	AsksModels: true,
	KeysBeside: true,
	Read:       readSimilar,
	About: "Scores how like in meaning the output is to a text: the cosine of their embeddings, at least 0. A model of " +
		"OpenAI's API makes these, by the same key [`judges`](judges.md#the-key-judges) as for judges. Equal texts are asked for once.",
	Keys: append([]evaluator.Key{
		{Name: "model", Kind: input.String, Required: true, About: "the model of embeddings, such as `text-embedding-3-small`"},
	}, slices.DeleteFunc(slices.Clone(commonKeys), func(k evaluator.Key) bool {
		return !slices.Contains([]string{"not", "path", "transform", "threshold"}, k.Name)
	})...),
	Criteria: []evaluator.Key{{Name: "expectedOutput", About: "a text, or texts in an array of which the nearest counts; " +
		"the evaluation's own `expectedOutput` if it is missing"}},
}

// alike is the configuration of an evaluator that compares meanings.
type alike struct {
	id, model string
	check     *check
}

func readSimilar(e *evaluator.Evaluator, c *evaluator.Config) {
	r := &reader{Reader: c.Reader}
	s := &alike{id: e.Def.ID, model: c.String("model"), check: &check{kind: TypeSimilar, negated: c.Bool("not"), weight: 1,
		path: r.path(c), threshold: r.threshold(c)}}
	r.transforms(c, s.check)
	if s.model == eval.SameAsAgent {
		c.Errorf(c.Get("model"), "expected a model of embeddings, which no agent is")
	}
	e.ExpectsOutput, e.CriteriaOptional = true, true
	e.Score = s.score
}

func (s *alike) score(ctx context.Context, subject eval.Subject, criteria *pyvalue.Object) evaluator.Outcome {
	if subject.Judge == nil {
		return evaluator.NoModel()
	}
	output, err := pyvalue.Parse(subject.Output)
	if err != nil {
		return evaluator.Failed("output: %v", err)
	}
	references, err := referencesIn(criteria.Values["expectedOutput"])
	if err != nil {
		return evaluator.Outcome{Failure: err}
	}
	judged := &eval.Judged{Reduce: "nearest"}
	one := *s.check
	one.test = func(ctx context.Context, scene *scene, v any) answer {
		return s.compare(ctx, scene.subject.Judge, references, v, judged)
	}
	found, err := one.run(ctx, &scene{subject: subject, value: output})
	out := evaluator.Outcome{Score: found.Score, Failure: err, Details: map[string]any{checksKey: []finding{found}}}
	if len(judged.Verdicts) > 0 {
		judged.Fingerprint = evaluator.Hash(TypeSimilar, judged.Verdicts[0].Model, string(s.settings()))
		out.Judged = judged
	}
	return out
}

// settings are what else changes a score.
func (s *alike) settings() []byte {
	var path string
	if s.check.path != nil {
		path = s.check.path.text
	}
	raw, _ := json.Marshal([]any{s.check.negated, path, s.check.transforms, s.check.threshold}) // nothing in it fails
	return raw
}

// referencesIn returns the texts with which an output is compared.
func referencesIn(v any) (out []string, err error) {
	list, several := v.([]any)
	if !several {
		list = []any{v}
	}
	for _, one := range list {
		t, unfit := text(one)
		if unfit = cmp.Or(unfit, blank(t)); unfit != "" {
			return nil, fmt.Errorf("expectedOutput cannot be compared: %s", unfit)
		}
		out = append(out, t)
	}
	if len(out) == 0 {
		return nil, errors.New("expectedOutput: expected at least one text")
	}
	return out, nil
}

// blank says that a text is empty, which has no embedding.
func blank(t string) string {
	if strings.TrimSpace(t) == "" {
		return "it is empty"
	}
	return ""
}

// compare tests how like a value is to the nearest reference.
func (s *alike) compare(ctx context.Context, judge eval.Judge, references []string, v any, judged *eval.Judged) answer {
	var quoted []string
	for _, one := range references {
		quoted = append(quoted, shown(one))
	}
	a := answer{want: "a text like " + strings.Join(quoted, " or ") + " in meaning"}
	t, unfit := text(v)
	if a.unfit = cmp.Or(unfit, blank(t)); a.unfit != "" {
		return a
	}
	vectors, err := s.embed(ctx, judge, append([]string{t}, references...), judged)
	if err != nil {
		a.failure = err
		return a
	}
	for _, one := range vectors[1:] {
		if len(one) != len(vectors[0]) {
			a.failure = &eval.JudgeError{Category: eval.JudgeInvalid, Message: fmt.Sprintf(
				"the model has given embeddings of %d and of %d numbers, which cannot be compared", len(vectors[0]), len(one))}
			return a
		}
		a.score = max(a.score, cosine(vectors[0], one))
	}
	a.got = fmt.Sprintf("%.3f for %s", a.score, shown(t))
	return a
}

// embed asks for the embeddings of all texts at once.
func (s *alike) embed(ctx context.Context, judge eval.Judge, texts []string, judged *eval.Judged) ([][]float64, error) {
	vectors, errs := make([][]float64, len(texts)), make([]error, len(texts))
	calls := make([]eval.JudgeCall, len(texts))
	var asking sync.WaitGroup
	for i, t := range texts {
		asking.Go(func() {
			got, err := judge.Ask(ctx, eval.Question{EvaluatorID: s.id, Sample: i, Model: s.model, Prompt: t, Embed: true,
				Check: func(raw json.RawMessage) error {
					_, err := vector(raw)
					return err
				}})
			if calls[i] = got.Call; err != nil {
				calls[i].Error, calls[i].ErrorCategory = evaluator.MessageOf(err)
			} else {
				calls[i].Label = eval.LabelEmbedding
				vectors[i], err = vector(got.Arguments)
			}
			errs[i] = err
		})
	}
	asking.Wait()
	for _, err := range errs {
		var notAsked *eval.NotAsked
		if errors.As(err, &notAsked) {
			return nil, err
		}
	}
	judged.Verdicts = calls
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return vectors, nil
}

// vector reads an embedding.
func vector(raw json.RawMessage) (out []float64, err error) {
	if err := json.Unmarshal(raw, &out); err != nil {
		return nil, errors.New("it is no array of numbers")
	}
	if square := dot(out, out); square < 1e-100 || square > 1e100 {
		return nil, errors.New("its numbers say no direction")
	}
	return out, nil
}

// cosine is that of the angle between two vectors of the same length, neither of which is 0.
func cosine(a, b []float64) float64 {
	return min(1, dot(a, b)/math.Sqrt(dot(a, a)*dot(b, b)))
}

func dot(a, b []float64) (sum float64) {
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}
