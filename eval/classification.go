package eval

import (
	"context"
	"errors"
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
		expected: expectedClassOf(e),
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
		c.Errorf(n, "expected at least one class")
	}
	metric := c.String("metricType")
	averaging := c.String("averaging")
	beta := c.Float("fValue")
	e.dataset = &classification{
		classes: classes,
		classOf: indexOf(classes),
		score:   func(m *confusion) float64 { return m.average(averaging, beta).metric(metric) },

		expected: expectedClassOf(e),
	}
	e.score = classify(c, classes)
}

// classify is the score of one rollout: the classes are compared in lower case, and must be known
// if there is a list.
func classify(c *config, classes []string) func(context.Context, Subject, *object) outcome {
	o := readOutput(c)
	if n := c.Get("lineByLineEvaluator"); o.lines != "" {
		c.Errorf(n, "a classification cannot be evaluated line by line")
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

// expectedClassOf finds the class that an evaluation expects of an evaluator, in lower case.
func expectedClassOf(e *evaluator) func(*Evaluation) (string, bool) {
	return func(evaluation *Evaluation) (string, bool) {
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
}
