package eval

import (
	"strings"

	"github.com/evalrun/evalrun/internal/input"
)

// MaxPrice is more than any model costs.
const MaxPrice = 1e9

// Price is the price of a million tokens of a model, in US dollars.
type Price struct {
	Input float64 `json:"input"`
	// CachedInput is the price of input that comes from a cache; without one the cost of such input
	// is not known.
	CachedInput *float64 `json:"cachedInput,omitempty"`
	Output      float64  `json:"output"`
}

// Prices are the prices of models, by name or by a pattern in which `*` stands for any characters.
type Prices map[string]Price

// Of returns the price of a model: the one under its name, else that of the pattern with the most
// characters beside `*`, the first in the order of the alphabet if there are several.
func (p Prices) Of(model string) (price Price, ok bool) {
	best, ok := BestPattern(p, model)
	return p[best], ok
}

// BestPattern finds what a map has for a name: the name itself, else the pattern with the most
// characters beside `*` that fits, the first in the order of the alphabet if there are several.
func BestPattern[V any](patterns map[string]V, name string) (best string, ok bool) {
	if _, ok := patterns[name]; ok {
		return name, true
	}
	most := -1
	for pattern := range patterns {
		n := len(pattern) - strings.Count(pattern, "*")
		if n < len(pattern) && (n > most || n == most && pattern < best) && fitsPattern(pattern, name) {
			best, most = pattern, n
		}
	}
	return best, most >= 0
}

// fitsPattern reports whether a text fits a pattern in which `*` stands for any characters, or none.
func fitsPattern(pattern, text string) bool {
	parts := strings.Split(pattern, "*")
	last := parts[len(parts)-1]
	text, ok := strings.CutPrefix(text, parts[0])
	if !ok {
		return false
	}
	for _, part := range parts[1 : len(parts)-1] {
		at := strings.Index(text, part)
		if at < 0 {
			return false
		}
		text = text[at+len(part):]
	}
	return strings.HasSuffix(text, last)
}

// Priced returns a usage with its cost. A cost that the usage has already counts. Otherwise the
// cost is not known if there is no price for the model, or none for cached input where there is
// some. It is incomplete if the tokens of a call are missing.
func (p Prices) Priced(u Usage) Usage {
	if u.Cost != nil {
		return u
	}
	price, ok := p.Of(u.Model)
	if !ok || price.CachedInput == nil && u.CachedInputTokens > 0 {
		return u
	}
	cached := min(u.CachedInputTokens, u.InputTokens)
	cost := float64(u.InputTokens-cached)*price.Input + float64(u.OutputTokens)*price.Output
	if cached > 0 {
		cost += float64(cached) * *price.CachedInput
	}
	cost = RoundCost(cost / 1e6)
	u.Cost, u.CostIncomplete = &cost, u.CostIncomplete || u.Unmetered > 0
	return u
}

// PricedAll returns usages with their costs.
func (p Prices) PricedAll(all []Usage) []Usage {
	out := make([]Usage, len(all))
	for i, u := range all {
		out[i] = p.Priced(u)
	}
	return out
}

// ParsePrices reads the prices of models; nil where there are none.
func ParsePrices(r *input.Reader, n *input.Node) Prices {
	if n == nil || n.Kind == input.Null {
		return nil
	}
	if n.Kind != input.Object {
		r.Errorf(n,
			`expected prices by model, such as {"gpt-5-mini": {"input": 0.25, "cachedInput": 0.025, "output": 2}}, got %s`,
			n.Kind)
		return nil
	}
	prices := Prices{}
	for _, m := range n.Members {
		o := r.Object(m.Value)
		if m.Value.Kind != input.Object {
			continue
		}
		var price Price
		if o.Required("input", input.Number) != nil {
			price.Input = o.Float("input", 0, 0, MaxPrice)
		}
		if o.Required("output", input.Number) != nil {
			price.Output = o.Float("output", 0, 0, MaxPrice)
		}
		if o.Has("cachedInput") {
			cached := o.Float("cachedInput", 0, 0, MaxPrice)
			price.CachedInput = &cached
		}
		o.Done()
		if m.Key == "" {
			r.Errorf(m.Value, "expected the name of a model, or a pattern with `*`")
		}
		prices[m.Key] = price
	}
	return prices
}
