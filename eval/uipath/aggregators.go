package uipath

import (
	"math"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/eval/evaluator"
	"github.com/evalrun/evalrun/eval/pyvalue"
	"github.com/evalrun/evalrun/internal/input"
)

var aggregatorsKey = evaluator.Key{Name: "aggregators", Kind: input.Array, Items: []evaluator.Key{
	{Name: "type", Kind: input.String, Required: true,
		Values: []string{"precision", "recall", "fscore", "confusion_matrix"}, About: "the metric"},
	{Name: "averaging", Kind: input.String, Otherwise: "macro", Values: []string{"macro", "micro"},
		About: "as above; not of a `confusion_matrix`"},
	{Name: "fValue", Kind: input.Number, Otherwise: 1.0, Least: math.SmallestNonzeroFloat64, Most: 1000,
		About: "beta of an `fscore`"},
}, About: "metrics over the whole set, of outputs that are labels; not with `caseSensitive`, `negated` or " +
	"`lineByLineEvaluator`"}

// readAggregators reads the `classes` and `aggregators` of an exact match evaluator; nil if there
// are none.
func readAggregators(c *evaluator.Config, name string, byLine, caseSensitive, negated bool) *evaluator.Classification {
	classes := c.Strings("classes")
	n, items := c.Array("aggregators")
	if len(items) == 0 {
		return nil
	}
	switch at := c.Get("classes"); {
	case len(classes) == 0:
		c.Errorf(n, "aggregators need `classes`, the list of labels")
	case byLine:
		c.Errorf(n, "aggregators do not go with lineByLineEvaluator: single lines have no labels")
	case caseSensitive:
		c.Errorf(n, "aggregators do not go with caseSensitive: labels are compared without regard to case")
	case negated:
		c.Errorf(n, "aggregators do not go with negated: it turns the score round and not the labels")
	case !distinct(classes):
		c.Errorf(at, "expected labels that are not blank, not padded with white space and different without "+
			"regard to case")
	}
	d := &evaluator.Classification{Classes: classes, ClassOf: indexOf(lower(classes))}
	for _, f := range items {
		a := evaluator.Aggregator{Kind: f.String("type")}
		if a.Kind != "confusion_matrix" {
			a.Averaging = f.String("averaging")
		}
		if a.Kind == "fscore" {
			a.Beta = f.Float("fValue")
		}
		f.Done()
		if !slices.Contains(d.Aggregators, a) {
			d.Aggregators = append(d.Aggregators, a)
		}
	}
	nameAggregators(d.Aggregators, name)
	return d
}

// nameAggregators gives every aggregator its key, and tells those of the same type apart.
func nameAggregators(aggregators []evaluator.Aggregator, evaluator string) {
	count := map[string]int{}
	for _, a := range aggregators {
		count[a.Kind]++
	}
	for i := range aggregators {
		a := &aggregators[i]
		a.Key = evaluator + "::" + a.Kind
		if count[a.Kind] > 1 {
			a.Key += "." + a.Averaging
			if a.Kind == "fscore" {
				a.Key += ".fb" + pyvalue.ReprFloat(a.Beta)
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

func lower(labels []string) []string {
	out := make([]string, len(labels))
	for i, label := range labels {
		out[i] = pyvalue.Lower(label)
	}
	return out
}

// indexOf returns a function that finds a label, whatever its case, among lower-case classes.
func indexOf(classes []string) func(label string) (int, bool) {
	index := make(map[string]int, len(classes))
	for i, class := range classes {
		index[class] = i
	}
	return func(label string) (int, bool) {
		i, ok := index[pyvalue.Lower(label)]
		return i, ok
	}
}
