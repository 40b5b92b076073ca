package eval

import (
	"cmp"
	"math"
	"slices"
)

// Usage is the usage of one model, or of all of them if Model is empty.
type Usage struct {
	// Model is the name under which the model was asked for.
	Model string `json:"model,omitempty"`
	// InputTokens are all tokens of the input, those that came from a cache included.
	InputTokens       int64 `json:"inputTokens"`
	CachedInputTokens int64 `json:"cachedInputTokens"`
	// OutputTokens are all tokens of the output, those of its reasoning included.
	OutputTokens int64 `json:"outputTokens"`
	// Cost is in US dollars, nil if it is not known.
	Cost *float64 `json:"cost"`
	// CostIncomplete says that Cost leaves out a part whose cost is not known.
	CostIncomplete bool `json:"costIncomplete,omitempty"`
	// Unmetered counts the calls that did not report their usage: their tokens are missing.
	Unmetered int `json:"unmetered,omitempty"`
}

// Tokens returns the tokens of input and output together.
func (u Usage) Tokens() int64 { return u.InputTokens + u.OutputTokens }

// CostKnown reports whether Cost is the cost of everything.
func (u Usage) CostKnown() bool { return u.Cost != nil && !u.CostIncomplete }

// Plus returns the sum of two usages, under the name of the first. If only one of the costs is
// known, the sum is incomplete.
func (u Usage) Plus(more Usage) Usage {
	u.InputTokens += more.InputTokens
	u.CachedInputTokens += more.CachedInputTokens
	u.OutputTokens += more.OutputTokens
	u.Unmetered += more.Unmetered
	u.CostIncomplete = u.CostIncomplete || more.CostIncomplete || (u.Cost == nil) != (more.Cost == nil)
	switch {
	case more.Cost == nil:
	case u.Cost == nil:
		u.Cost = more.Cost
	default:
		sum := RoundCost(*u.Cost + *more.Cost)
		u.Cost = &sum
	}
	return u
}

// RoundCost rounds a sum of decimal numbers, so that it stays one.
func RoundCost(cost float64) float64 { return math.Round(cost*1e12) / 1e12 }

// MergeUsage sums usages by model, in the order of the models' names. It does not change its
// arguments.
func MergeUsage(all ...Usage) []Usage {
	out := slices.Clone(all)
	slices.SortStableFunc(out, func(a, b Usage) int { return cmp.Compare(a.Model, b.Model) })
	merged := out[:0]
	for _, u := range out {
		if last := len(merged) - 1; last >= 0 && merged[last].Model == u.Model {
			merged[last] = merged[last].Plus(u)
			continue
		}
		merged = append(merged, u)
	}
	return merged
}

// TotalUsage is the sum of usages, whatever their models; nil if there are none.
func TotalUsage(all []Usage) *Usage {
	if len(all) == 0 {
		return nil
	}
	total := all[0]
	for _, u := range all[1:] {
		total = total.Plus(u)
	}
	total.Model = ""
	return &total
}
