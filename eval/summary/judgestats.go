package summary

import (
	"slices"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/evaluator"
)

// JudgeSummary says what the judges of one evaluator did in a run. Judges whose templates, models
// or parameters differ have an entry each.
type JudgeSummary struct {
	EvaluatorID string `json:"evaluatorId"`
	// Fingerprint is the same for judges that are asked the same in the same way: if it differs
	// between two runs, a difference of their scores does not come from the agents alone.
	Fingerprint string `json:"fingerprint"`
	// Models are the models that were asked for, ModelsReturned those that have answered.
	Models         []string `json:"models"`
	ModelsReturned []string `json:"modelsReturned"`
	// Calls counts the questions, Cached those that were answered from the cache, Errors those
	// without an answer by category.
	Calls  int                        `json:"calls"`
	Cached int                        `json:"cached"`
	Errors map[eval.JudgeCategory]int `json:"errors"`
	// PaidTwice counts the questions with an answer that was no verdict and was paid for, and then
	// another one.
	PaidTwice int `json:"paidTwice,omitempty"`
	// Usage is the usage of the questions that were asked of a provider.
	Usage eval.Usage `json:"usage"`
	// Raters says how far the judges agree if they are people, whose ratings are the Calls.
	Raters  *Raters `json:"raters,omitempty"`
	ratings *raterTally
	// Panel says how far the verdicts on a rollout agree with each other, if several were asked for.
	Panel *Raters `json:"panel,omitempty"`
	// Position counts the choices of a judge that compares two answers.
	Position *PositionCounts `json:"position,omitempty"`
	// Reference is the run whose outputs it compares with, nil if there is none.
	Reference *eval.ReferenceRun `json:"reference,omitempty"`
	verdicts  raterTally
	// metered says that Usage is more than its beginning, which costs nothing.
	metered bool
}

// judgeTally sums up the work of judges.
type judgeTally []*JudgeSummary

func (t *judgeTally) add(results []eval.Result) {
	for _, r := range results {
		if len(r.Ratings) > 0 {
			t.rate(r)
		}
		if r.Judge == nil || r.Line {
			continue
		}
		s := t.find(r.EvaluatorID, r.Judge.Fingerprint)
		var verdicts []eval.Rating
		for _, call := range r.Judge.Verdicts {
			s.add(call)
			if call.Score != nil {
				verdicts = append(verdicts, eval.Rating{Score: *call.Score, Label: call.Label})
			}
		}
		s.verdicts.add(verdicts)
	}
}

// rate adds the ratings of people.
func (t *judgeTally) rate(r eval.Result) {
	s := t.find(r.EvaluatorID, "")
	if s.ratings == nil {
		s.ratings = &raterTally{}
	}
	s.Calls += len(r.Ratings)
	s.ratings.add(r.Ratings)
}

func (t *judgeTally) find(evaluator, fingerprint string) *JudgeSummary {
	for _, s := range *t {
		if s.EvaluatorID == evaluator && s.Fingerprint == fingerprint {
			return s
		}
	}
	s := &JudgeSummary{EvaluatorID: evaluator, Fingerprint: fingerprint, Models: []string{},
		ModelsReturned: []string{}, Errors: map[eval.JudgeCategory]int{}, Usage: eval.Usage{Cost: new(float64)}}
	*t = append(*t, s)
	return s
}

func (s *JudgeSummary) add(c eval.JudgeCall) {
	s.Calls++
	insert(&s.Models, c.Model)
	insert(&s.ModelsReturned, c.ModelReturned)
	if c.ErrorCategory != "" {
		s.Errors[c.ErrorCategory]++
	}
	if c.PaidTwice {
		s.PaidTwice++
	}
	switch {
	case c.Cached:
		s.Cached++
		return
	case c.Usage == nil:
		if c.Attempts > 0 && c.ErrorCategory == "" {
			s.Usage.Unmetered++
		}
		return
	}
	used := *c.Usage
	used.Model = ""
	if s.metered {
		used = s.Usage.Plus(used)
	}
	used.Unmetered = s.Usage.Unmetered
	s.Usage, s.metered = used, true
}

// insert keeps a list of names sorted and without duplicates.
func insert(list *[]string, name string) {
	if i, found := slices.BinarySearch(*list, name); !found && name != "" {
		*list = slices.Insert(*list, i, name)
	}
}

// summaries returns the summaries of all evaluators, in the order of the plan.
func (t judgeTally) summaries(
	defs []eval.Definition, built map[string]*evaluator.Evaluator,
) (out []JudgeSummary) {
	for _, def := range defs {
		e := built[def.ID]
		for _, s := range t {
			if s.EvaluatorID != def.ID {
				continue
			}
			one := *s
			if s.ratings != nil {
				s.ratings.nominal = e != nil && e.Nominal
				one.Fingerprint, one.Raters = def.Digest(), s.ratings.summary()
			}
			if e != nil && e.Pairs {
				one.Position = s.verdicts.positions()
				if def.Reference != nil {
					reference := *def.Reference
					one.Reference = &reference
				}
			} else if slices.ContainsFunc(s.verdicts.units, func(unit []float64) bool { return len(unit) > 1 }) {
				s.verdicts.nominal = len(s.verdicts.labels) > 0
				one.Panel = s.verdicts.summary()
			}
			out = append(out, one)
		}
	}
	return out
}
