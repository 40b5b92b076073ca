package eval

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/input"
)

// expectedClassKey are the criteria of a classification.
var expectedClassKey = key{name: "expectedClass", kind: input.String, required: true, about: "the class that the output should name, in any case"}

var binaryType = evaluatorType{
	read: binaryClassification,
	about: "Scores 1 if the output names the expected class, else 0. Over the whole set it gives precision, recall or F-score of the " +
		"positive class.",
	keys: append([]key{
		{name: "positiveClass", kind: input.String, required: true, about: "the class of which the metric is"},
		{name: "metricType", kind: input.String, otherwise: "precision", values: metricTypes, about: "the score of the set"},
		fValueKey,
	}, classKeys...),
	criteria: []key{expectedClassKey},
}

// classKeys are the keys of outputKeys that a classification knows: it has no lines.
var classKeys = []key{
	outputKeys[0],
	{name: "lineByLineEvaluator", kind: input.Bool, otherwise: false, about: "is refused if it is true: a classification has no lines"},
	outputKeys[2],
}

var metricTypes = []string{"precision", "recall", "f-score"}

// binaryClassification scores 1 if the predicted class is the expected one; over the set it gives
// precision, recall or F-score of the positive class.
func binaryClassification(e *evaluator, c *config) {
	positive := toLower(c.String("positiveClass"))
	metric := c.String("metricType")
	beta := c.Float("fValue")
	e.dataset = &classification{
		classes: []string{positive, ""},
		classOf: func(label string) (int, bool) { return int(1 - truth(label == positive)), true },
		score: func(m *confusion) float64 {
			return m.class(0, beta).metric(metric)
		},
		expected: e.expectedClass,
	}
	e.score = classify(c, nil)
}

var multiclassType = evaluatorType{
	read: multiclassClassification,
	about: "Scores 1 if the output names the expected class, else 0; one that names none of the classes scores 0. Over the whole set it " +
		"gives precision, recall or F-score, averaged over the classes.",
	keys: append([]key{
		{name: "classes", kind: input.Array, required: true, about: "all classes, in any case"},
		{name: "metricType", kind: input.String, otherwise: "f-score", values: metricTypes, about: "the score of the set"},
		{name: "averaging", kind: input.String, otherwise: "macro", values: []string{"micro", "macro"}, about: "`macro` averages the classes' metrics, `micro` counts all predictions together"},
		fValueKey,
	}, classKeys...),
	criteria: []key{expectedClassKey},
}

// multiclassClassification does the same for any number of classes, with micro or macro averages.
func multiclassClassification(e *evaluator, c *config) {
	classes := lower(c.Strings("classes"))
	if n := c.Required("classes", input.Array); n != nil && len(n.Items) == 0 {
		c.r.Errorf(n, "expected at least one class")
	}
	metric := c.String("metricType")
	averaging := c.String("averaging")
	beta := c.Float("fValue")
	e.dataset = &classification{
		classes: classes,
		classOf: indexOf(classes),
		score:   func(m *confusion) float64 { return m.average(averaging, beta).metric(metric) },

		expected: e.expectedClass,
	}
	e.score = classify(c, classes)
}

// classify is the score of one rollout: the classes are compared in lower case, and must be known
// if there is a list.
func classify(c *config, classes []string) func(context.Context, Subject, *object) outcome {
	o := readOutput(c)
	if n := c.Get("lineByLineEvaluator"); o.lines != "" {
		c.r.Errorf(n, "a classification cannot be evaluated line by line")
	}
	o.expectedWhole = true
	o.expected = func(criteria *object) (any, error) {
		v, _ := criteria.get("expectedClass", "expected_class")
		class, ok := v.(string)
		if !ok {
			return nil, errors.New("criteria: expectedClass: expected a string, got " + kindOf(v))
		}
		return class, nil
	}
	o.compare = func(_ context.Context, expected, actual any) outcome {
		e, a := toLower(str(expected)), toLower(str(actual))
		if classes != nil && !slices.Contains(classes, e) {
			return failed("INVALID_EXPECTED_CLASS: the expected class %q is none of %s", e, strings.Join(classes, ", "))
		}
		if classes != nil && !slices.Contains(classes, a) {
			return failed("INVALID_PREDICTED_CLASS: the predicted class %q is none of %s", a, strings.Join(classes, ", "))
		}
		return outcome{score: truth(e == a), details: comparison{e, a}}
	}
	return o.score
}

func lower(labels []string) []string {
	out := make([]string, len(labels))
	for i, label := range labels {
		out[i] = toLower(label)
	}
	return out
}

// indexOf finds a label, whatever its case, among lower-case classes.
func indexOf(classes []string) func(label string) (int, bool) {
	index := make(map[string]int, len(classes))
	for i, class := range classes {
		index[class] = i
	}
	return func(label string) (int, bool) {
		i, ok := index[toLower(label)]
		return i, ok
	}
}

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

// expectedClass is the class that an evaluation expects, in lower case.
func (e *evaluator) expectedClass(evaluation *Evaluation) (string, bool) {
	raw, asked := evaluation.Criteria[e.def.ID]
	if !asked {
		return "", false
	}
	criteria, err := e.criteria(raw, evaluation.ExpectedOutput)
	if err != nil {
		return "", false
	}
	v, _ := criteria.get("expectedClass", "expected_class")
	class, ok := v.(string)
	return strings.ToLower(class), ok
}

// Metrics are those of one class, or an average over classes.
type Metrics struct {
	Precision float64 `json:"precision"`
	Recall    float64 `json:"recall"`
	FScore    float64 `json:"fScore"`
}

func (a Metrics) metric(name string) float64 {
	switch name {
	case "precision":
		return a.Precision
	case "recall":
		return a.Recall
	}
	return a.FScore
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

// ClassMetrics are the counts and metrics of one class of a DatasetResult.
type ClassMetrics struct {
	TP      int `json:"tp"`
	TN      int `json:"tn"`
	FP      int `json:"fp"`
	FN      int `json:"fn"`
	Support int `json:"support"`
	Metrics
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

var aggregatorsKey = key{name: "aggregators", kind: input.Array, items: []key{
	{name: "type", kind: input.String, required: true, values: []string{"precision", "recall", "fscore", "confusion_matrix"}, about: "the metric"},
	{name: "averaging", kind: input.String, otherwise: "macro", values: []string{"macro", "micro"}, about: "as above; not of a `confusion_matrix`"},
	{name: "fValue", kind: input.Number, otherwise: 1.0, least: math.SmallestNonzeroFloat64, most: 1000, about: "beta of an `fscore`"},
}, about: "metrics over the whole set, of outputs that are labels; not with `caseSensitive`, `negated` or `lineByLineEvaluator`"}

// readAggregators reads the `classes` and `aggregators` of an exact match evaluator; nil if there
// are none.
func readAggregators(c *config, name string, byLine, caseSensitive, negated bool) *classification {
	classes := c.Strings("classes")
	n, items := c.Array("aggregators")
	if len(items) == 0 {
		return nil
	}
	switch at := c.Get("classes"); {
	case len(classes) == 0:
		c.r.Errorf(n, "aggregators need `classes`, the list of labels")
	case byLine:
		c.r.Errorf(n, "aggregators do not go with lineByLineEvaluator: single lines have no labels")
	case caseSensitive:
		c.r.Errorf(n, "aggregators do not go with caseSensitive: labels are compared without regard to case")
	case negated:
		c.r.Errorf(n, "aggregators do not go with negated: it turns the score round and not the labels")
	case !distinct(classes):
		c.r.Errorf(at, "expected labels that are not blank, not padded with white space and different without regard to case")
	}
	d := &classification{classes: classes, classOf: indexOf(lower(classes))}
	for _, f := range items {
		a := aggregator{kind: f.String("type")}
		if a.kind != "confusion_matrix" {
			a.averaging = f.String("averaging")
		}
		if a.kind == "fscore" {
			a.beta = f.Float("fValue")
		}
		f.Done()
		if !slices.Contains(d.aggregators, a) {
			d.aggregators = append(d.aggregators, a)
		}
	}
	d.nameAggregators(name)
	return d
}

// nameAggregators gives every aggregator its key, with what tells it apart if its type comes again.
func (c *classification) nameAggregators(evaluator string) {
	count := map[string]int{}
	for _, a := range c.aggregators {
		count[a.kind]++
	}
	for i := range c.aggregators {
		a := &c.aggregators[i]
		a.key = evaluator + "::" + a.kind
		if count[a.kind] > 1 {
			a.key += "." + a.averaging
			if a.kind == "fscore" {
				a.key += ".fb" + reprFloat(a.beta)
			}
		}
	}
}

func distinct(labels []string) bool {
	seen := map[string]bool{}
	for _, label := range lower(labels) {
		if label == "" || label != strings.TrimSpace(label) || seen[label] {
			return false
		}
		seen[label] = true
	}
	return true
}

// DatasetResult is a set-level result of a classification.
type DatasetResult struct {
	// Score is the metric; of a confusion matrix the share of right predictions.
	Score   float64        `json:"score"`
	Details DatasetDetails `json:"details"`
}

// DatasetDetails are the numbers behind a DatasetResult, spelled as UiPath spells them.
type DatasetDetails struct {
	Metric    string   `json:"metric"`
	Averaging string   `json:"averaging,omitempty"`
	FValue    *float64 `json:"fValue,omitempty"`
	Classes   []string `json:"classes"`
	// ConfusionMatrix is indexed by the predicted, then the expected class.
	ConfusionMatrix [][]int                 `json:"confusionMatrix"`
	PerClass        map[string]ClassMetrics `json:"perClass,omitempty"`
	Macro           *Metrics                `json:"macro,omitempty"`
	Micro           *Metrics                `json:"micro,omitempty"`
	NTotal          int                     `json:"nTotal"`
	NScored         int                     `json:"nScored"`
	NSkipped        int                     `json:"nSkipped"`
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
