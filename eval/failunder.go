package eval

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/evalrun/evalrun/internal/input"
)

// FailUnder holds the thresholds of a command line: the least mean score of an evaluator by its id,
// and that of the set by the empty id.
type FailUnder map[string]float64

// ParseFailUnder reads minima such as 0.9 and evaluator=0.9.
func ParseFailUnder(values []string) (FailUnder, error) {
	out := FailUnder{}
	for _, text := range values {
		id, number := "", text
		if at := strings.LastIndex(text, "="); at >= 0 {
			id, number = text[:at], text[at+1:]
		}
		least, err := strconv.ParseFloat(number, 64)
		_, twice := out[id]
		switch {
		case err != nil || !(least >= 0 && least <= 1) || id == "" && number != text: // NaN is neither
			return nil, fmt.Errorf("expected a number from 0 to 1, or EVALUATOR=NUMBER, got %q", text)
		case twice && id == "":
			return nil, fmt.Errorf("expected one number for the score, got another one: %q", text)
		case twice:
			return nil, fmt.Errorf("expected one number for the evaluator %q, got another one: %q", id, text)
		}
		out[id] = least
	}
	return out, nil
}

// Check makes sure that the set has the evaluators. A task brings a verifier of its own.
func (u FailUnder) Check(s *Set) error {
	known := s.EvaluatorIDs()
	for _, id := range slices.Sorted(maps.Keys(u)) {
		if id != "" && id != Verifier.ID && !slices.Contains(known, id) {
			return fmt.Errorf("there is no evaluator %q; the set has %s%s", id, input.List(known),
				input.Suggest(id, known))
		}
	}
	return nil
}

// Under replaces the thresholds of the same figures by these minima. Each is compared with the
// figure itself.
func (t *Thresholds) Under(u FailUnder) {
	t.Evaluators = maps.Clone(t.Evaluators)
	for id, least := range u {
		switch {
		case id == "":
			t.Score = &Threshold{Min: least}
		case t.Evaluators == nil:
			t.Evaluators = map[string]Threshold{id: {Min: least}}
		default:
			t.Evaluators[id] = Threshold{Min: least}
		}
	}
}
