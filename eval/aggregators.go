package eval

import (
	"math"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/input"
)

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
		c.Errorf(n, "aggregators need `classes`, the list of labels")
	case byLine:
		c.Errorf(n, "aggregators do not go with lineByLineEvaluator: single lines have no labels")
	case caseSensitive:
		c.Errorf(n, "aggregators do not go with caseSensitive: labels are compared without regard to case")
	case negated:
		c.Errorf(n, "aggregators do not go with negated: it turns the score round and not the labels")
	case !distinct(classes):
		c.Errorf(at, "expected labels that are not blank, not padded with white space and different without regard to case")
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
	nameAggregators(d.aggregators, name)
	return d
}

// nameAggregators gives every aggregator its key, with what tells it apart if its type comes again.
func nameAggregators(aggregators []aggregator, evaluator string) {
	count := map[string]int{}
	for _, a := range aggregators {
		count[a.kind]++
	}
	for i := range aggregators {
		a := &aggregators[i]
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
