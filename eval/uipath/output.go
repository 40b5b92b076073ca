package uipath

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/evaluator"
	"github.com/evalrun/evalrun/eval/pyvalue"
	"github.com/evalrun/evalrun/internal/input"
)

// output is an evaluator that compares an agent's output, or parts of it, with an expected value.
type output struct {
	// paths select the parts; list tells one path from a list with one path.
	paths []string
	list  bool
	// lines is the delimiter of a line-by-line evaluator, empty if it compares the whole.
	lines string
	// expected finds the expected value in the criteria.
	expected func(criteria *pyvalue.Object) (any, error)
	// expectedWhole is set if the expected value does not mirror the output, so that paths do not
	// apply to it and every line is compared with all of it.
	expectedWhole bool
	// relation is the relation that the two sides should have.
	relation eval.Relation
	compare  func(ctx context.Context, expected, actual any) evaluator.Outcome
}

// outputKeys are the keys of all evaluators of outputs.
var outputKeys = []evaluator.Key{
	{Name: "targetOutputKey", Otherwise: "*",
		About: "the part of the output that is compared: a path such as `result.items[0]`, `*` for all of it, " +
			"or an array of paths. It applies to the expected output too"},
	{Name: "lineByLineEvaluator", Kind: input.Bool, Otherwise: false,
		About: "compares line by line; the score is the share of lines that match. " +
			"Not with an array of paths"},
	{Name: "lineDelimiter", Kind: input.String, Otherwise: "\n", About: "what ends a line"},
}

// readOutput reads the keys that all output evaluators share.
func readOutput(c *evaluator.Config) *output {
	o := &output{paths: []string{"*"}, expected: expectedOutput, relation: eval.Equals}
	if n := c.Get("targetOutputKey"); n != nil && n.Kind != input.Null {
		switch n.Kind {
		case input.String:
			o.paths = []string{n.Text}
		case input.Array:
			o.paths, o.list = c.Strings("targetOutputKey"), true
		default:
			c.Errorf(n, `expected a path such as "result.items[0]" or an array of paths, got %s`, n.Kind)
		}
		for _, path := range o.paths {
			if path != "*" && !pyvalue.IsPath(path) {
				c.Errorf(n, `expected a path such as "result.items[0]", got %q`, path)
			}
		}
	}
	byLine := c.Bool("lineByLineEvaluator")
	delimiter := c.String("lineDelimiter")
	if n := c.Get("lineDelimiter"); n != nil && n.Kind == input.String && n.Text == "" {
		c.Errorf(n, "expected a string that is not empty")
	}
	if byLine && !o.list { // a list of paths switches line by line off
		o.lines = delimiter
	}
	return o
}

// expectedOutput returns the criteria's expectedOutput.
func expectedOutput(criteria *pyvalue.Object) (any, error) {
	v, ok := criteria.Get("expectedOutput", "expected_output")
	if !ok {
		return nil, errors.New("criteria: expectedOutput is missing")
	}
	return v, nil
}

func (o *output) score(ctx context.Context, s eval.Subject, criteria *pyvalue.Object) evaluator.Outcome {
	actual, err := pyvalue.Parse(s.Output)
	if err != nil {
		return evaluator.Failed("the agent's output: %w", err)
	}
	if actual, err = o.actual(actual); errors.Is(err, errAttachment) {
		return evaluator.Outcome{Failure: err} // it is not the agent's doing
	} else if err != nil {
		return evaluator.Outcome{Err: err}
	}
	expected, err := o.expected(criteria)
	if err != nil {
		return evaluator.Outcome{Err: err}
	}
	if !o.expectedWhole {
		if expected, err = o.expectedPart(expected); err != nil {
			return evaluator.Outcome{Err: err}
		}
	}
	out := evaluator.Outcome{}
	if o.lines != "" {
		out = o.scoreLines(ctx, expected, actual)
	} else {
		out = o.compare(ctx, expected, actual)
	}
	out.Compared = &evaluator.Compared{Expected: expected, Actual: actual, Relation: o.relation}
	return out
}

// actual selects the parts of the agent's output.
func (o *output) actual(v any) (any, error) {
	if _, ok := v.(*pyvalue.Object); o.list && !ok {
		return nil, fmt.Errorf("INVALID_ACTUAL_OUTPUT: a list of target output keys needs an object, got %s",
			pyvalue.KindOf(v))
	}
	v, err := o.part(v, "actual")
	if err != nil {
		return nil, err
	}
	parts := []any{v}
	if parent, ok := v.(*pyvalue.Object); ok && o.list {
		for _, part := range parent.Values {
			parts = append(parts, part)
		}
	}
	if slices.ContainsFunc(parts, isAttachment) {
		return nil, errAttachment
	}
	return v, nil
}

// expectedPart selects the parts of the expected output, which may be an object or, as UiPath
// allows, one in a string.
func (o *output) expectedPart(v any) (any, error) {
	if !o.list && o.paths[0] == "*" {
		return pyvalue.Normalize(v), nil
	}
	if s, ok := v.(string); ok {
		parsed, err := pyvalue.Parse([]byte(s))
		if err != nil || s == "" {
			return nil, fmt.Errorf("INVALID_EXPECTED_OUTPUT: with a target output key the expected output must be "+
				"an object, got the string %q", s)
		}
		v = parsed
	}
	if _, ok := v.(*pyvalue.Object); !ok {
		return nil, fmt.Errorf("INVALID_EXPECTED_OUTPUT: with a target output key the expected output must be an "+
			"object, got %s", pyvalue.KindOf(v))
	}
	return o.part(v, "expected")
}

func (o *output) part(v any, side string) (any, error) {
	if !o.list {
		part, err := pyvalue.Resolve(v, o.paths[0])
		if err != nil {
			return nil, fmt.Errorf("TARGET_OUTPUT_KEY_NOT_FOUND: %q in the %s output: %w", o.paths[0], side, err)
		}
		return pyvalue.Normalize(part), nil
	}
	parts := pyvalue.New()
	for _, path := range o.paths {
		part, err := pyvalue.Resolve(v, path)
		if err != nil {
			return nil, fmt.Errorf("TARGET_OUTPUT_KEY_NOT_FOUND: %q in the %s output: %w", path, side, err)
		}
		parts.Set(path, pyvalue.Normalize(part))
	}
	return parts, nil
}

var errAttachment = errors.New("the output is an attachment of UiPath's storage, which evalrun cannot download")

// isAttachment recognises a file in UiPath's storage, by its URN or by the object that describes
// one.
func isAttachment(v any) bool {
	switch v := v.(type) {
	case string:
		return strings.HasPrefix(v, "urn:uipath:cas:file:orchestrator:")
	case *pyvalue.Object:
		_, id := v.Get("ID", "id")
		_, name := v.Get("FullName", "fullName")
		_, mime := v.Get("MimeType", "mimeType")
		return id && name && mime
	}
	return false
}

// lineDetails and linesDetails are the details of a line-by-line result, spelled as UiPath spells
// them.
type lineDetails struct {
	LineNumber int    `json:"line_number"`
	Actual     string `json:"actual"`
	Expected   string `json:"expected"`
	Score      any    `json:"score"` // a number, or for some legacy evaluators a boolean
	Details    any    `json:"details"`
}

type linesDetails struct {
	Results       []lineDetails `json:"line_by_line_results"`
	TotalActual   int           `json:"total_lines_actual"`
	TotalExpected int           `json:"total_lines_expected"`
	Aggregation   string        `json:"aggregation_method"`
}

// scoreLines compares line by line; the score is the average, 0 if there is no line at all.
func (o *output) scoreLines(ctx context.Context, expected, actual any) evaluator.Outcome {
	expectedLines, actualLines := splitLines(pyvalue.Str(expected), o.lines), splitLines(pyvalue.Str(actual), o.lines)
	return averageLines(expectedLines, actualLines, func(expectedLine, actualLine string) evaluator.Outcome {
		if o.expectedWhole {
			return o.compare(ctx, expected, actualLine)
		}
		return o.compare(ctx, expectedLine, actualLine)
	})
}

// averageLines pairs the lines and averages their scores; a line that is missing on one side is
// empty there.
func averageLines(expected, actual []string,
	compare func(expected, actual string) evaluator.Outcome) evaluator.Outcome {
	details := linesDetails{Results: []lineDetails{}, TotalActual: len(actual), TotalExpected: len(expected),
		Aggregation: "average"}
	var out evaluator.Outcome
	n := max(len(expected), len(actual))
	for i := range n {
		var e, a string
		if i < len(expected) {
			e = expected[i]
		}
		if i < len(actual) {
			a = actual[i]
		}
		line := compare(e, a)
		out.Lines, out.Judged = append(out.Lines, line), out.Judged.And(line.Judged)
		if line.Failure != nil {
			return evaluator.Outcome{Failure: line.Failure, Judged: out.Judged} // the others alone give no score
		}
		out.Score += line.Score
		shown := lineDetails{i + 1, a, e, line.Score, line.Details}
		if line.Shown != nil {
			shown.Score = line.Shown
		}
		if line.Err != nil {
			shown.Details = "Exception thrown by evaluator: " + line.Err.Error()
		}
		details.Results = append(details.Results, shown)
	}
	if n > 0 {
		out.Score /= float64(n)
	}
	out.Details = details
	return out
}

// splitLines splits a text and drops the blank lines.
func splitLines(text, delimiter string) []string {
	return slices.DeleteFunc(strings.Split(text, delimiter), func(line string) bool {
		return strings.TrimSpace(line) == ""
	})
}

// comparison is the details object of the evaluators that compare two texts.
type comparison struct {
	Expected string `json:"expected"`
	Actual   string `json:"actual"`
}

// These are keys that evaluators have in common.
var (
	caseSensitiveKey = evaluator.Key{Name: "caseSensitive", Kind: input.Bool, Otherwise: false,
		About: "whether upper and lower case differ"}
	negatedKey = evaluator.Key{Name: "negated", Kind: input.Bool, Otherwise: false,
		About: "turns the score round: 1 becomes 0 and 0 becomes 1"}
	strictKey = evaluator.Key{Name: "strict", Kind: input.Bool, Otherwise: false,
		About: "all or nothing: the score is 1 if everything is as expected, else 0"}
	fValueKey = evaluator.Key{Name: "fValue", Kind: input.Number, Otherwise: 1.0, Least: 0, Most: 1000,
		About: "beta of the F-score: how much more recall counts than precision"}
)
