package summary

import (
	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/stats"
)

// UsageSummary is the use of models by rollouts.
type UsageSummary struct {
	// Rollouts counts those that reported their usage.
	Rollouts int `json:"rollouts"`
	// Unlimited counts those that have ended without reporting it, although the eval set limits it.
	Unlimited int `json:"unlimited,omitempty"`
	// Total is the sum of Models.
	Total  eval.Usage   `json:"total"`
	Models []eval.Usage `json:"models"`
	// TokensPerEvaluation and CostPerEvaluation are means over the evaluations that have ended and
	// have them for all epochs; nil if there are none.
	TokensPerEvaluation *float64 `json:"tokensPerEvaluation"`
	CostPerEvaluation   *float64 `json:"costPerEvaluation"`
}

// plus returns the sum of two agents, without means. Either may be nil.
func (s *UsageSummary) plus(more *UsageSummary) *UsageSummary {
	var sum UsageSummary
	for _, one := range []*UsageSummary{s, more} {
		if one != nil {
			sum.Rollouts, sum.Unlimited = sum.Rollouts+one.Rollouts, sum.Unlimited+one.Unlimited
			sum.Models = append(sum.Models, one.Models...)
		}
	}
	if s == nil && more == nil {
		return nil
	}
	sum.sum()
	return &sum
}

func (s *UsageSummary) sum() {
	s.Models = append([]eval.Usage{}, eval.MergeUsage(s.Models...)...)
	if total := eval.TotalUsage(s.Models); total != nil {
		s.Total = *total
	}
}

// usageTally adds up the usage of an agent's rollouts.
type usageTally struct {
	UsageSummary
	tokens, costs []float64
}

// add adds the rollouts of one evaluation. The figures are per epoch.
func (t *usageTally) add(rollouts []Rollout, limited, finished bool) (tokens, cost Figure) {
	for _, r := range rollouts {
		switch total := eval.TotalUsage(r.Usage); {
		case total != nil:
			t.Rollouts++
			t.Models = eval.MergeUsage(append(t.Models, r.Usage...)...)
			if total.Unmetered == 0 {
				tokens.Epochs = append(tokens.Epochs, float64(total.Tokens()))
			}
			if total.CostKnown() {
				cost.Epochs = append(cost.Epochs, *total.Cost)
			}
		case limited && r.State == eval.StateCompleted:
			t.Unlimited++
		}
	}
	for _, one := range []struct {
		figure *Figure
		all    *[]float64
	}{{&tokens, &t.tokens}, {&cost, &t.costs}} {
		one.figure.Open = !finished
		if finished && len(one.figure.Epochs) == len(rollouts) {
			value := stats.Mean(one.figure.Epochs)
			one.figure.Value = &value
			*one.all = append(*one.all, value*float64(len(rollouts)))
		}
	}
	return tokens, cost
}

// summary returns nil if there is no usage.
func (t *usageTally) summary() *UsageSummary {
	if t.Rollouts+t.Unlimited == 0 {
		return nil
	}
	s := t.UsageSummary
	s.sum()
	if len(t.tokens) > 0 {
		perEvaluation := stats.Mean(t.tokens)
		s.TokensPerEvaluation = &perEvaluation
	}
	if len(t.costs) > 0 {
		perEvaluation := eval.RoundCost(stats.Mean(t.costs))
		s.CostPerEvaluation = &perEvaluation
	}
	return &s
}
