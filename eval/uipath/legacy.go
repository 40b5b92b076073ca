package uipath

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/evaluator"
	"github.com/evalrun/evalrun/eval/pyvalue"
	"github.com/evalrun/evalrun/internal/input"
)

// legacyScale is the score of a legacy evaluator that means perfect.
const legacyScale = 100

// legacy is the common part of the evaluators of UiPath's legacy files. Their configuration is the
// whole file.
type legacy struct {
	path  string
	lines string
}

// legacyKeys are the keys of all legacy evaluators.
var legacyKeys = []evaluator.Key{
	{Name: "targetOutputKey", Kind: input.String, Otherwise: "*",
		About: "the part of the output that is compared; `*` for all of it"},
	{Name: "lineByLineEvaluation", Kind: input.Bool, Otherwise: false,
		About: "compares line by line; the score is the share of lines that match"},
	{Name: "lineDelimiter", Kind: input.String, Otherwise: "\n", About: "what ends a line"},
}

func readLegacy(e *evaluator.Evaluator, c *evaluator.Config) *legacy {
	e.Scale, e.ExpectsOutput = legacyScale, true
	c.Ignore("id", "fileName", "category", "type", "createdAt", "updatedAt", "prompt", "model", "maxTokens",
		"temperature",
		"targetSubOutputKey", "projectId", "weight")
	l := &legacy{path: c.String("targetOutputKey")}
	if l.path == "" {
		l.path = "*"
	}
	byLine := c.Bool("lineByLineEvaluation")
	if delimiter := c.String("lineDelimiter"); byLine && delimiter != "" {
		l.lines = delimiter
	}
	return l
}

// sides reads the agent's and the expected output.
func sides(s eval.Subject, criteria *pyvalue.Object) (expected, actual any, err error) {
	if actual, err = pyvalue.Parse(s.Output); err != nil {
		return nil, nil, fmt.Errorf("the agent's output: %w", err)
	}
	expected, err = expectedOutput(criteria)
	return expected, actual, err
}

var legacyEqualsType = evaluator.Kind{
	OutputAlone: true,
	Read:        legacyEquals,
	About: "UiPath's legacy category 0, type 1: scores 100 if both sides are the same JSON, else 0. A path " +
		"that is missing on either side is a match.",
	Keys:     legacyKeys,
	Criteria: []evaluator.Key{evaluator.ExpectedOutputKey},
}

// legacyEquals scores 100 if both sides are the same JSON. If the target path is missing on either
// side both count as empty objects, which are equal, as UiPath does.
func legacyEquals(e *evaluator.Evaluator, c *evaluator.Config) {
	l := readLegacy(e, c)
	e.Score = func(_ context.Context, s eval.Subject, criteria *pyvalue.Object) evaluator.Outcome {
		expected, actual, err := sides(s, criteria)
		if err != nil {
			return evaluator.Outcome{Err: err}
		}
		if eo, ok := expected.(*pyvalue.Object); ok && l.path != "*" {
			if ao, ok := actual.(*pyvalue.Object); ok {
				var missing, absent error
				expected, missing = pyvalue.Resolve(eo, l.path)
				actual, absent = pyvalue.Resolve(ao, l.path)
				if missing != nil || absent != nil {
					expected, actual = pyvalue.New(), pyvalue.New()
				}
			}
		}
		compare := func(e, a any) evaluator.Outcome {
			same := pyvalue.Canonical(e) == pyvalue.Canonical(a)
			return evaluator.Outcome{Score: pyvalue.Truth(same), Shown: same,
				Details: comparison{pyvalue.Str(e), pyvalue.Str(a)}}
		}
		return l.compare(expected, actual, eval.Equals, compare)
	}
}

// compare compares both sides as a whole or line by line.
func (l *legacy) compare(expected, actual any, relation eval.Relation,
	compare func(expected, actual any) evaluator.Outcome) (out evaluator.Outcome) {
	if l.lines == "" {
		out = compare(expected, actual)
	} else {
		out = averageLines(splitLines(pyvalue.Str(expected), l.lines), splitLines(pyvalue.Str(actual), l.lines),
			func(e, a string) evaluator.Outcome { return compare(e, a) })
	}
	out.Compared = &evaluator.Compared{Expected: expected, Actual: actual, Relation: relation}
	return out
}

var legacyJSONSimilarityType = evaluator.Kind{
	OutputAlone: true,
	Read:        legacyJSONSimilarity,
	About:       "UiPath's legacy category 0, type 6: `uipath-json-similarity` from 0 to 100.",
	Keys:        legacyKeys,
	Criteria:    []evaluator.Key{evaluator.ExpectedOutputKey},
}

// legacyJSONSimilarity is jsonSimilarity from 0 to 100. A path that is missing gives an empty
// object on its own side.
func legacyJSONSimilarity(e *evaluator.Evaluator, c *evaluator.Config) {
	l := readLegacy(e, c)
	e.Score = func(ctx context.Context, s eval.Subject, criteria *pyvalue.Object) evaluator.Outcome {
		expected, actual, err := sides(s, criteria)
		if err != nil {
			return evaluator.Outcome{Err: err}
		}
		if expected, err = pyvalue.Resolve(expected, l.path); err != nil {
			expected = pyvalue.New()
		}
		if actual, err = pyvalue.Resolve(actual, l.path); err != nil {
			actual = pyvalue.New()
		}
		return l.compare(expected, actual, eval.Includes, func(e, a any) evaluator.Outcome {
			matched, total, err := similarity(ctx, e, a)
			if err != nil {
				return evaluator.Outcome{Err: err}
			}
			return evaluator.Outcome{
				Score: share(matched, total),
				Shown: share(matched, total) * legacyScale,
				Details: fmt.Sprintf("Matched leaves: %s, Total leaves: %s", pyvalue.ReprFloat(matched),
					pyvalue.ReprFloat(total)),
			}
		})
	}
}

var legacyCSVType = evaluator.Kind{
	OutputAlone: true,
	Read:        legacyCSV,
	About: "UiPath's legacy category 0, type 10: scores 100 if columns of the first row of a CSV text are the " +
		"same on both sides; line by line, the share of rows.",
	Keys: append([]evaluator.Key{
		{Name: "targetSubOutputKey", Kind: input.String, Required: true,
			About: "the names of the columns, separated by commas, in any case"},
	}, legacyKeys...),
	Criteria: []evaluator.Key{evaluator.ExpectedOutputKey},
}

// legacyCSV scores 100 if the named columns of the first data row are the same on both sides; line
// by line it compares every row.
func legacyCSV(e *evaluator.Evaluator, c *evaluator.Config) {
	l := readLegacy(e, c)
	var columns []string
	names := c.String("targetSubOutputKey")
	for name := range strings.SplitSeq(names, ",") {
		if name = strings.TrimSpace(name); name != "" {
			columns = append(columns, name)
		}
	}
	if n := c.Get("targetSubOutputKey"); n != nil && n.Kind == input.String && n.Text != "" && len(columns) == 0 {
		c.Errorf(n, "expected the names of columns, separated by commas")
	}
	e.Score = func(_ context.Context, s eval.Subject, criteria *pyvalue.Object) evaluator.Outcome {
		expected, actual, err := sides(s, criteria)
		if err != nil {
			return evaluator.Outcome{Err: err}
		}
		if actual, err = pyvalue.Resolve(actual, l.path); err != nil {
			return evaluator.Failed("TARGET_OUTPUT_KEY_NOT_FOUND: %q in the actual output: %w", l.path, err)
		}
		if part, err := pyvalue.Resolve(expected, l.path); err == nil {
			expected = part
		}
		expectedText, actualText := csvText(expected), csvText(actual)
		if strings.TrimSpace(expectedText) == "" || strings.TrimSpace(actualText) == "" {
			return evaluator.Failed("the CSV text is empty")
		}
		if l.lines != "" {
			return csvRows(expectedText, actualText, l.lines, columns)
		}
		return csvRow(expectedText, actualText, columns)
	}
}

// csvText finds the CSV text in an output: the content of an object, or the output itself.
func csvText(v any) string {
	if o, ok := v.(*pyvalue.Object); ok {
		if content, ok := o.Values["content"]; ok {
			v = content
		}
	}
	return pyvalue.Str(v)
}

func csvRow(expected, actual string, columns []string) evaluator.Outcome {
	a, err := csvValues(actual, columns)
	if err != nil {
		return evaluator.Failed("the actual CSV: %w", err)
	}
	e, err := csvValues(expected, columns)
	if err != nil {
		return evaluator.Failed("the expected CSV: %w", err)
	}
	same := slices.Equal(e, a)
	return evaluator.Outcome{Score: pyvalue.Truth(same), Shown: same,
		Compared: &evaluator.Compared{Expected: record(columns, e), Actual: record(columns, a), Relation: eval.Equals}}
}

// record returns a row of a table as an object.
func record(columns, values []string) *pyvalue.Object {
	o := pyvalue.New()
	for i, column := range columns {
		o.Set(column, values[i])
	}
	return o
}

// csvRows compares every data row under its own side's header; a row that only one side has scores
// 0.
func csvRows(expected, actual, delimiter string, columns []string) evaluator.Outcome {
	e, a := splitLines(expected, delimiter), splitLines(actual, delimiter)
	if len(e) == 0 || len(a) == 0 {
		return evaluator.Failed("the CSV text needs a header row")
	}
	return averageLines(e[1:], a[1:], func(expectedRow, actualRow string) evaluator.Outcome {
		return csvRow(e[0]+"\n"+expectedRow, a[0]+"\n"+actualRow, columns)
	})
}

// csvValues returns the trimmed values of the columns in the first data row. Column names are found
// in any case.
func csvValues(text string, columns []string) ([]string, error) {
	r := csv.NewReader(strings.NewReader(text))
	r.FieldsPerRecord = -1
	r.LazyQuotes = true
	header, err := r.Read()
	if err != nil {
		return nil, fmt.Errorf("no header row: %w", err)
	}
	if strings.HasPrefix(strings.TrimPrefix(text, "\r"), "\n") {
		header = nil // Python skips blank lines after the first one only
	}
	index := map[string]int{}
	for i, name := range header {
		index[pyvalue.Lower(name)] = i
	}
	var missing []string
	for _, column := range columns {
		if _, ok := index[pyvalue.Lower(column)]; !ok {
			missing = append(missing, column)
		}
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("columns missing: %s", strings.Join(missing, ", "))
	}
	row, err := r.Read()
	if errors.Is(err, io.EOF) {
		return nil, errors.New("no data row")
	}
	if err != nil {
		return nil, err
	}
	values := make([]string, len(columns))
	for i, column := range columns {
		if at := index[pyvalue.Lower(column)]; at < len(row) {
			values[i] = strings.TrimSpace(row[at])
		}
	}
	return values, nil
}
