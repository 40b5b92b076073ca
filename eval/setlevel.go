package eval

import (
	"encoding/json"
	"slices"
)

// classification computes set-level results from the details of single ones.
type classification struct {
	classes []string
	classOf func(label string) (int, bool)
	// score is the evaluator's score of the set, nil if that is the mean.
	score func(*confusion) float64
	// expected finds the class that an evaluation expects, where score is not nil.
	expected func(*Evaluation) (label string, ok bool)
	// aggregators are published one by one.
	aggregators []aggregator
}

// confusion counts predictions. Matrix is indexed by the predicted, then the expected class; missed
// counts the predictions outside the vocabulary by expected class.
type confusion struct {
	matrix                 [][]int
	missed                 []int
	total, scored, skipped int
}

func (c *classification) newConfusion() *confusion {
	m := &confusion{matrix: make([][]int, len(c.classes)), missed: make([]int, len(c.classes))}
	for i := range m.matrix {
		m.matrix[i] = make([]int, len(c.classes))
	}
	return m
}

// add counts one result. A result without labels, or with an expected label outside the vocabulary,
// is skipped.
func (c *classification) add(m *confusion, result Result) {
	m.total++
	var labels struct{ Expected, Actual *string }
	if result.Error != "" || json.Unmarshal(result.Details, &labels) != nil || labels.Expected == nil || labels.Actual == nil {
		m.skipped++
		return
	}
	expected, known := c.classOf(*labels.Expected)
	if !known {
		m.skipped++
		return
	}
	m.scored++
	if predicted, known := c.classOf(*labels.Actual); known {
		m.matrix[predicted][expected]++
	} else {
		m.missed[expected]++
	}
}

// lose counts a prediction that is none of the classes, or that was not made: a false negative of
// the class that was expected.
func (c *classification) lose(m *confusion, evaluation *Evaluation) {
	if c.expected == nil || evaluation == nil {
		return
	}
	m.total++
	label, ok := c.expected(evaluation)
	expected, known := c.classOf(label)
	if !ok || !known {
		m.skipped++
		return
	}
	m.scored++
	m.missed[expected]++
}

// ratios are the metrics for so many true positives, false positives and false negatives; 0 where
// they are undefined.
func ratios(tp, fp, fn int, beta float64) Metrics {
	var a Metrics
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

func (m *confusion) class(i int, beta float64) ClassMetrics {
	c := ClassMetrics{TP: m.matrix[i][i], FN: m.missed[i]}
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

// average gives the mean of the classes' metrics (macro), or the metrics of all counts together
// (micro).
func (m *confusion) average(averaging string, beta float64) Metrics {
	var tp, fp, fn int
	var macro Metrics
	n := float64(len(m.matrix))
	for i := range m.matrix {
		c := m.class(i, beta)
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
func (m *confusion) accuracy() float64 {
	right := 0
	for i := range m.matrix {
		right += m.matrix[i][i]
	}
	if m.scored == 0 {
		return 0
	}
	return float64(right) / float64(m.scored)
}

// aggregator is one set-level metric of an exact match evaluator.
type aggregator struct {
	key       string
	kind      string
	averaging string
	beta      float64
}

// results gives the result of every aggregator under its key.
func (c *classification) results(m *confusion) map[string]DatasetResult {
	matrix := make([][]int, len(m.matrix))
	for i, row := range m.matrix {
		matrix[i] = slices.Clone(row)
	}
	out := make(map[string]DatasetResult, len(c.aggregators))
	for _, a := range c.aggregators {
		details := DatasetDetails{Metric: a.kind, Averaging: a.averaging, Classes: c.classes, ConfusionMatrix: matrix,
			NTotal: m.total, NScored: m.scored, NSkipped: m.skipped}
		if a.kind == "confusion_matrix" {
			out[a.key] = DatasetResult{m.accuracy(), details}
			continue
		}
		beta := 1.0
		if a.kind == "fscore" {
			beta = a.beta
			details.FValue = &beta
		}
		macro, micro := m.average("macro", beta), m.average("micro", beta)
		details.Macro, details.Micro = &macro, &micro
		details.PerClass = map[string]ClassMetrics{}
		for i, class := range c.classes {
			details.PerClass[class] = m.class(i, beta)
		}
		out[a.key] = DatasetResult{m.average(a.averaging, beta).metric(a.kind), details}
	}
	return out
}
