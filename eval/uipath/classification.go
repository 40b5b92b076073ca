package uipath

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/evaluator"
	"github.com/evalrun/evalrun/eval/pyvalue"
	"github.com/evalrun/evalrun/internal/input"
)

// expectedClassKey is the key of a classification's criteria.
var expectedClassKey = evaluator.Key{Name: "expectedClass", Kind: input.String, Required: true,
	About: "the class that the output should name, in any case"}

var binaryType = evaluator.Kind{
	OutputAlone: true,
	Read:        binaryClassification,
	About: "Scores 1 if the output names the expected class, else 0. Over the whole set it gives precision, " +
		"recall or F-score of the " +
		"positive class.",
	Keys: append([]evaluator.Key{
		{Name: "positiveClass", Kind: input.String, Required: true, About: "the class of which the metric is"},
		{Name: "metricType", Kind: input.String, Otherwise: "precision", Values: metricTypes,
			About: "the score of the set"},
		fValueKey,
	}, classKeys...),
	Criteria: []evaluator.Key{expectedClassKey},
}

// classKeys are the keys of outputKeys that a classification knows: it has no lines.
var classKeys = []evaluator.Key{
	outputKeys[0],
	{Name: "lineByLineEvaluator", Kind: input.Bool, Otherwise: false,
		About: "is refused if it is true: a classification has no lines"},
	outputKeys[2],
}

var metricTypes = []string{"precision", "recall", "f-score"}

// binaryClassification scores 1 if the predicted class is the expected one; over the set it gives
// precision, recall or F-score of the positive class.
func binaryClassification(e *evaluator.Evaluator, c *evaluator.Config) {
	positive := pyvalue.Lower(c.String("positiveClass"))
	metric := c.String("metricType")
	beta := c.Float("fValue")
	e.Classification = &evaluator.Classification{
		Classes: []string{positive, ""},
		ClassOf: func(label string) (int, bool) { return int(1 - pyvalue.Truth(label == positive)), true },
		Score: func(m *evaluator.Confusion) float64 {
			return m.Class(0, beta).Metric(metric)
		},
		Expected: expectedClassOf(e),
	}
	e.Score = classify(c, nil)
}

var multiclassType = evaluator.Kind{
	OutputAlone: true,
	Read:        multiclassClassification,
	About: "Scores 1 if the output names the expected class, else 0; one that names none of the classes scores 0. " +
		"Over the whole set it " +
		"gives precision, recall or F-score, averaged over the classes.",
	Keys: append([]evaluator.Key{
		{Name: "classes", Kind: input.Array, Required: true, About: "all classes, in any case"},
		{Name: "metricType", Kind: input.String, Otherwise: "f-score", Values: metricTypes,
			About: "the score of the set"},
		{Name: "averaging", Kind: input.String, Otherwise: "macro", Values: []string{"micro", "macro"},
			About: "`macro` averages the classes' metrics, `micro` counts all predictions together"},
		fValueKey,
	}, classKeys...),
	Criteria: []evaluator.Key{expectedClassKey},
}

// multiclassClassification does the same for any number of classes, with micro or macro averages.
func multiclassClassification(e *evaluator.Evaluator, c *evaluator.Config) {
	classes := lower(c.Strings("classes"))
	if n := c.Required("classes", input.Array); n != nil && len(n.Items) == 0 {
		c.Errorf(n, "expected at least one class")
	}
	metric := c.String("metricType")
	averaging := c.String("averaging")
	beta := c.Float("fValue")
	e.Classification = &evaluator.Classification{
		Classes: classes,
		ClassOf: indexOf(classes),
		Score:   func(m *evaluator.Confusion) float64 { return m.Average(averaging, beta).Metric(metric) },

		Expected: expectedClassOf(e),
	}
	e.Score = classify(c, classes)
}

// classify scores one rollout: the classes are compared in lower case, and must be known if there
// is a list.
func classify(
	c *evaluator.Config, classes []string,
) func(context.Context, eval.Subject, *pyvalue.Object) evaluator.Outcome {
	o := readOutput(c)
	if n := c.Get("lineByLineEvaluator"); o.lines != "" {
		c.Errorf(n, "a classification cannot be evaluated line by line")
	}
	o.expectedWhole = true
	o.expected = func(criteria *pyvalue.Object) (any, error) {
		v, _ := criteria.Get("expectedClass", "expected_class")
		class, ok := v.(string)
		if !ok {
			return nil, errors.New("criteria: expectedClass: expected a string, got " + pyvalue.KindOf(v))
		}
		return class, nil
	}
	o.compare = func(_ context.Context, expected, actual any) evaluator.Outcome {
		e, a := pyvalue.Lower(pyvalue.Str(expected)), pyvalue.Lower(pyvalue.Str(actual))
		if classes != nil && !slices.Contains(classes, e) {
			return evaluator.Failed("INVALID_EXPECTED_CLASS: the expected class %q is none of %s", e,
				strings.Join(classes, ", "))
		}
		if classes != nil && !slices.Contains(classes, a) {
			return evaluator.Failed("INVALID_PREDICTED_CLASS: the predicted class %q is none of %s", a,
				strings.Join(classes, ", "))
		}
		return evaluator.Outcome{Score: pyvalue.Truth(e == a), Details: comparison{e, a}}
	}
	return o.score
}

// expectedClassOf finds the class that an evaluation expects of an evaluator, in lower case.
func expectedClassOf(e *evaluator.Evaluator) func(*eval.Evaluation) (string, bool) {
	return func(evaluation *eval.Evaluation) (string, bool) {
		raw, asked := evaluation.Criteria[e.Def.ID]
		if !asked {
			return "", false
		}
		criteria, err := e.Criteria(raw, evaluation.ExpectedOutput)
		if err != nil {
			return "", false
		}
		v, _ := criteria.Get("expectedClass", "expected_class")
		class, ok := v.(string)
		return strings.ToLower(class), ok
	}
}
