package evaluator

import (
	"encoding/json"
	"slices"

	"github.com/evalrun/evalrun/eval"
)

// Classification computes set-level results from the details of single ones.
type Classification struct {
	Classes []string
	ClassOf func(label string) (int, bool)
	// Score gives the evaluator's score of the set, nil if that is the mean.
	Score func(*Confusion) float64
	// Expected finds the class that an evaluation expects, if Score is not nil.
	Expected func(*eval.Evaluation) (label string, ok bool)
	// Aggregators are published one by one.
	Aggregators []Aggregator
}

// Confusion counts predictions. Matrix is indexed by the predicted, then the expected class; missed
// counts the predictions outside the vocabulary by expected class.
type Confusion struct {
	matrix                 [][]int
	missed                 []int
	Total, scored, Skipped int
}

// NewConfusion begins to count predictions.
func (c *Classification) NewConfusion() *Confusion {
	m := &Confusion{matrix: make([][]int, len(c.Classes)), missed: make([]int, len(c.Classes))}
	for i := range m.matrix {
		m.matrix[i] = make([]int, len(c.Classes))
	}
	return m
}

// Add counts one result. A result without labels, or with an expected label outside the vocabulary,
// is skipped.
func (c *Classification) Add(m *Confusion, result eval.Result) {
	m.Total++
	var labels struct{ Expected, Actual *string }
	if result.Error != "" || json.Unmarshal(result.Details, &labels) != nil || labels.Expected == nil ||
		labels.Actual == nil {
		m.Skipped++
		return
	}
	expected, known := c.ClassOf(*labels.Expected)
	if !known {
		m.Skipped++
		return
	}
	m.scored++
	if predicted, known := c.ClassOf(*labels.Actual); known {
		m.matrix[predicted][expected]++
	} else {
		m.missed[expected]++
	}
}

// Lose counts a prediction that is none of the classes, or that was not made: a false negative of
// the expected class.
func (c *Classification) Lose(m *Confusion, evaluation *eval.Evaluation) {
	if c.Expected == nil || evaluation == nil {
		return
	}
	m.Total++
	label, ok := c.Expected(evaluation)
	expected, known := c.ClassOf(label)
	if !ok || !known {
		m.Skipped++
		return
	}
	m.scored++
	m.missed[expected]++
}

// ratios returns the metrics for counts of true positives, false positives and false negatives; 0
// where they are undefined.
func ratios(tp, fp, fn int, beta float64) eval.Metrics {
	var a eval.Metrics
	if tp+fp > 0 {
		a.Precision = float64(tp) / float64(tp+fp)
	}
	if tp+fn > 0 {
		a.Recall = float64(tp) / float64(tp+fn)
	}
	square := beta * beta
	if denominator := square*a.Precision + a.Recall; denominator > 0 {
		a.FScore = (1 + square) * a.Precision * a.Recall / denominator
	}
	return a
}

// Class returns the counts and metrics of one class.
func (m *Confusion) Class(i int, beta float64) eval.ClassMetrics {
	c := eval.ClassMetrics{TP: m.matrix[i][i], FN: m.missed[i]}
	for j := range m.matrix {
		if j != i {
			c.FP += m.matrix[i][j]
			c.FN += m.matrix[j][i]
		}
	}
	c.TN = m.scored - c.TP - c.FP - c.FN
	c.Support = c.TP + c.FN
	c.Metrics = ratios(c.TP, c.FP, c.FN, beta)
	return c
}

// Average returns the mean of the classes' metrics (macro), or the metrics of all counts together
// (micro).
func (m *Confusion) Average(averaging string, beta float64) eval.Metrics {
	var tp, fp, fn int
	var macro eval.Metrics
	n := float64(len(m.matrix))
	for i := range m.matrix {
		c := m.Class(i, beta)
		tp, fp, fn = tp+c.TP, fp+c.FP, fn+c.FN
		macro.Precision += c.Precision / n
		macro.Recall += c.Recall / n
		macro.FScore += c.FScore / n
	}
	if averaging == "micro" {
		return ratios(tp, fp, fn, beta)
	}
	return macro
}

// accuracy is the share of right predictions.
func (m *Confusion) accuracy() float64 {
	right := 0
	for i := range m.matrix {
		right += m.matrix[i][i]
	}
	if m.scored == 0 {
		return 0
	}
	return float64(right) / float64(m.scored)
}

// Aggregator is one set-level metric of an exact match evaluator.
type Aggregator struct {
	Key       string
	Kind      string
	Averaging string
	Beta      float64
}

// Results returns the result of every aggregator under its key.
func (c *Classification) Results(m *Confusion) map[string]eval.DatasetResult {
	matrix := make([][]int, len(m.matrix))
	for i, row := range m.matrix {
		matrix[i] = slices.Clone(row)
	}
	out := make(map[string]eval.DatasetResult, len(c.Aggregators))
	for _, a := range c.Aggregators {
		details := eval.DatasetDetails{Metric: a.Kind, Averaging: a.Averaging, Classes: c.Classes,
			ConfusionMatrix: matrix,
			NTotal:          m.Total, NScored: m.scored, NSkipped: m.Skipped}
		if a.Kind == "confusion_matrix" {
			out[a.Key] = eval.DatasetResult{Score: m.accuracy(), Details: details}
			continue
		}
		beta := 1.0
		if a.Kind == "fscore" {
			beta = a.Beta
			details.FValue = &beta
		}
		macro, micro := m.Average("macro", beta), m.Average("micro", beta)
		details.Macro, details.Micro = &macro, &micro
		details.PerClass = map[string]eval.ClassMetrics{}
		for i, class := range c.Classes {
			details.PerClass[class] = m.Class(i, beta)
		}
		out[a.Key] = eval.DatasetResult{Score: m.Average(a.Averaging, beta).Metric(a.Kind), Details: details}
	}
	return out
}
