package compare

import (
	"github.com/evalrun/evalrun/eval/stats"
)

// Options say what is compared and how it is judged.
type Options struct {
	// By are the figures: score, passRate, evaluator:ID; empty for the score, the pass rate and all
	// evaluators. The first one decides.
	By []string
	// Margin of equivalence; nil for none.
	Margin *float64
	// NoWorseThan and BetterThan are gates; nil for none.
	NoWorseThan, BetterThan *float64
	// MissingZero takes the score of a side that has none, and will get none, for 0; else the
	// evaluation is left out.
	MissingZero bool
	// AllowDifferentSets compares what both sides have, although their evaluations or evaluators
	// differ.
	AllowDifferentSets bool
	stats.Settings
}
