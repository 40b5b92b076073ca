package agent

import (
	"slices"
	"strconv"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/fault"
)

// Budget is what a rollout may spend on models.
type Budget struct {
	// Tokens and Cost are the limits; 0 means none.
	Tokens int64
	Cost   float64
	Prices eval.Prices
	// Spent is the usage of earlier segments and attempts.
	Spent []eval.Usage
}

// Exceeded returns the fault of a segment with this usage; nil if it may go on. A limit of cost
// cannot be kept if a model has no price, which is a fault of the eval set.
func (b *Budget) Exceeded(used []eval.Usage) *fault.Fault {
	if b == nil || b.Tokens == 0 && b.Cost == 0 {
		return nil
	}
	all := b.Prices.PricedAll(slices.Concat(b.Spent, used))
	total := eval.TotalUsage(all)
	switch {
	case total == nil:
		return nil
	case b.Tokens > 0 && total.Tokens() > b.Tokens:
		return fault.Newf(fault.Budget, "the agent has used %d tokens, more than %d (limits.tokens)",
			total.Tokens(), b.Tokens)
	case b.Cost > 0 && total.Cost != nil && *total.Cost > b.Cost:
		return fault.Newf(fault.Budget, "the agent has used models for $%s, more than $%s (limits.cost)",
			amount(*total.Cost), amount(b.Cost))
	}
	for _, u := range all {
		if b.Cost > 0 && u.Cost == nil && u.Tokens() > 0 {
			return fault.Newf(fault.NotRunnable, "limits.cost cannot be kept: prices says nothing of what %q has used; "+
				"give the model a price, also for cachedInput if it has a cache", u.Model)
		}
	}
	return nil
}

func amount(cost float64) string { return strconv.FormatFloat(cost, 'f', -1, 64) }
