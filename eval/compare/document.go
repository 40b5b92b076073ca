package compare

import (
	"github.com/evalrun/evalrun/eval/stats"
	"github.com/evalrun/evalrun/eval/summary"
)

// Version is the version of the documents.
const Version = "1.0"

// Document is a comparison of a baseline A with a candidate B.
type Document struct {
	SchemaVersion string `json:"schemaVersion"`
	A             Source `json:"a"`
	B             Source `json:"b"`
	// Pairs counts the evaluations that both sides have scored, for each agent.
	Pairs int `json:"pairs"`
	// OnlyA and OnlyB are evaluations that only one side has.
	OnlyA []string `json:"onlyA"`
	OnlyB []string `json:"onlyB"`
	// Missing are evaluations that both sides have and that not both have scored.
	Missing []Missing `json:"missing"`
	// SetDifferences are differences of the evaluations and evaluators themselves, which were allowed.
	// PlanDifferences are all others.
	SetDifferences  []string `json:"setDifferences"`
	PlanDifferences []string `json:"planDifferences"`
	// JudgeDifferences says where judges were not the same, or were not run: differences of scores
	// then do not come from the agents alone.
	JudgeDifferences []string `json:"judgeDifferences,omitempty"`
	// Gates are judged by the first comparison.
	Gates []Gate `json:"gates"`
	// Comparisons has a row for each figure, the first of which decides.
	Comparisons []Row `json:"comparisons"`
	// Items are the evaluations that differ in the first figure: regressions, the worst first, then
	// improvements, the best first.
	Items []Item `json:"items"`
}

// Missing is an evaluation that cannot be compared.
type Missing struct {
	EvaluationID string `json:"evaluationId"`
	Agent        string `json:"agent,omitempty"`
	// A and B are the scores, nil on the side that has none.
	A *float64 `json:"a"`
	B *float64 `json:"b"`
	// Open says that a side may still bring a score, or was cancelled.
	Open bool `json:"open"`
}

// Row compares one figure.
type Row struct {
	// By is score, passRate, evaluator:ID, tokens or cost.
	By string `json:"by"`
	// Name is the evaluator's name, empty if it is the id or if the figure is another one.
	Name string `json:"name,omitempty"`
	// LowerIsBetter is set for tokens and cost.
	LowerIsBetter bool `json:"lowerIsBetter,omitempty"`
	// Evaluations counts the evaluations of the pairs: fewer than N if there are several agents.
	Evaluations int `json:"evaluations"`
	stats.Difference
	// HolmP is the p-value that is shown, adjusted for the number of rows.
	HolmP float64 `json:"holmP"`
	// EvaluationsNeeded is how many evaluations like these would find the margin, or without one the
	// difference, with the power; nil if that is not known.
	EvaluationsNeeded *int `json:"evaluationsNeeded"`
	// Bounds are the difference if everything that is missing turned out worst for B, and best; nil if
	// there are none.
	Bounds []float64 `json:"bounds,omitempty"`
	// Margin is the margin of equivalence, if one was given.
	Margin *float64 `json:"margin,omitempty"`
	// Verdict holds whatever the missing scores would have been.
	Verdict Verdict `json:"verdict"`
	// low and high are the ends of the interval if everything that is missing turned out worst for B,
	// and best.
	low, high *float64
}

// P is the p-value that is shown.
func (r *Row) P() float64 {
	if r.McNemarExact != nil {
		return *r.McNemarExact // the same test, without drawing
	}
	return r.SignFlipP
}

// Verdict is the verdict on a row.
type Verdict string

// The verdicts of rows.
const (
	Improved   Verdict = "improved"
	Regressed  Verdict = "regressed"
	Equivalent Verdict = "equivalent"
	Undecided  Verdict = "undecided"
)

// Item is an evaluation that differs.
type Item struct {
	EvaluationID   string  `json:"evaluationId"`
	EvaluationName string  `json:"evaluationName"`
	Agent          string  `json:"agent,omitempty"`
	A              float64 `json:"a"`
	B              float64 `json:"b"`
	D              float64 `json:"d"`
	// EpochsA and EpochsB are how many epochs have a score. FaultsA and FaultsB are the categories of
	// the faults of the others.
	EpochsA int      `json:"epochsA"`
	EpochsB int      `json:"epochsB"`
	FaultsA []string `json:"faultsA,omitempty"`
	FaultsB []string `json:"faultsB,omitempty"`
	// RolloutsA and RolloutsB are all epochs.
	RolloutsA []Rollout `json:"rolloutsA"`
	RolloutsB []Rollout `json:"rolloutsB"`
	// Changes are the evaluators whose scores differ, by their ids.
	Changes []Change `json:"changes,omitempty"`
}

// Change holds an evaluator's scores of an evaluation on both sides, nil where it has given none.
type Change struct {
	Evaluator string `json:"evaluator"`
	// Name is the evaluator's name, empty if it is the id.
	Name string   `json:"name,omitempty"`
	A    *float64 `json:"a"`
	B    *float64 `json:"b"`
}

// Gate is a demand on the first row, judged by its interval.
type Gate struct {
	// Rule is noWorseThan or betterThan.
	Rule   string  `json:"rule"`
	By     string  `json:"by"`
	Margin float64 `json:"margin"`
	// Low and High bound the interval: its lower end if everything that is missing turned out worst,
	// and its upper end if it turned out best. They are nil if there is no interval.
	Low  *float64 `json:"low"`
	High *float64 `json:"high"`
	// Open counts the evaluations that may still bring a score, for each agent.
	Open int `json:"open"`
	// Lost counts the evaluations whose missing scores will not come: the environment failed, or an
	// evaluator did, or was not run.
	Lost    int                 `json:"lost,omitempty"`
	Verdict summary.GateVerdict `json:"verdict"`
	// EvaluationsNeeded is how many evaluations like these would decide a gate that is undecided.
	EvaluationsNeeded *int `json:"evaluationsNeeded"`
}

// SelfTestDocument says how often a comparison of two halves of one run finds a difference.
type SelfTestDocument struct {
	SchemaVersion string          `json:"schemaVersion"`
	A             Source          `json:"a"`
	By            string          `json:"by"`
	Evaluations   int             `json:"evaluations"`
	AA            *stats.SelfTest `json:"aa"`
}
