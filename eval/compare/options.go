package compare

import (
	"github.com/evalrun/evalrun/eval/stats"
)

// Options say which figures are compared and how they are judged.
type Options struct {
	// By are the figures: score, passRate, evaluator:ID; empty for the score, the pass rate and all
	// evaluators. The first one decides.
	By []string
	// Margin is the margin of equivalence; nil for none.
	Margin *float64
	// NoWorseThan and BetterThan are gates; nil for none.
	NoWorseThan, BetterThan *float64
	// MissingZero counts the score of a side that has none, and will get none, as 0; else the
	// evaluation is left out.
	MissingZero bool
	// AllowDifferentSets compares the evaluations that both sides have, although their evaluations or
	// evaluators differ.
	AllowDifferentSets bool
	stats.Settings
}
