package eval

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/input"
)

// legacyScale is the score that means perfect to a legacy evaluator.
const legacyScale = 100

// legacy is what the evaluators of UiPath's legacy files have in common. Their configuration is the
// whole file.
type legacy struct {
	path  string
	lines string
}

// legacyKeys are the keys of all legacy evaluators.
var legacyKeys = []key{
	{name: "targetOutputKey", kind: input.String, otherwise: "*", about: "the part of the output that is compared; `*` for all of it"},
	{name: "lineByLineEvaluation", kind: input.Bool, otherwise: false, about: "compares line by line; the score is the share of lines that match"},
	{name: "lineDelimiter", kind: input.String, otherwise: "\n", about: "what ends a line"},
}

func readLegacy(e *evaluator, c *config) *legacy {
	e.scale, e.expectsOutput = legacyScale, true
	c.Ignore("id", "fileName", "category", "type", "createdAt", "updatedAt", "prompt", "model", "maxTokens", "temperature",
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
func sides(s Subject, criteria *object) (expected, actual any, err error) {
	if actual, err = parseValue(s.Output); err != nil {
		return nil, nil, fmt.Errorf("the agent's output: %w", err)
	}
	expected, err = expectedOutput(criteria)
	return expected, actual, err
}

var legacyEqualsType = evaluatorType{
	read:     legacyEquals,
	about:    "UiPath's legacy category 0, type 1: scores 100 if both sides are the same JSON, else 0. A path that is missing on either side is a match.",
	keys:     legacyKeys,
	criteria: []key{expectedOutputKey},
}

// legacyEquals scores 100 if both sides are the same JSON. If the target path is missing on either
// side both count as empty objects, which are equal: so do UiPath's.
func legacyEquals(e *evaluator, c *config) {
	l := readLegacy(e, c)
	e.score = func(_ context.Context, s Subject, criteria *object) outcome {
		expected, actual, err := sides(s, criteria)
		if err != nil {
			return outcome{err: err}
		}
		if eo, ok := expected.(*object); ok && l.path != "*" {
			if ao, ok := actual.(*object); ok {
				var missing, absent error
				expected, missing = resolve(eo, l.path)
				actual, absent = resolve(ao, l.path)
				if missing != nil || absent != nil {
					expected, actual = newObject(), newObject()
				}
			}
		}
		compare := func(e, a any) outcome {
			same := canonical(e) == canonical(a)
			return outcome{score: truth(same), shown: same, details: comparison{str(e), str(a)}}
		}
		return l.compare(expected, actual, Equals, compare)
	}
}

// compare compares as a whole or line by line.
func (l *legacy) compare(expected, actual any, relation Relation, compare func(expected, actual any) outcome) (out outcome) {
	if l.lines == "" {
		out = compare(expected, actual)
	} else {
		out = averageLines(splitLines(str(expected), l.lines), splitLines(str(actual), l.lines), func(e, a string) outcome { return compare(e, a) })
	}
	out.compared = &compared{expected, actual, relation}
	return out
}

var legacyJSONSimilarityType = evaluatorType{
	read:     legacyJSONSimilarity,
	about:    "UiPath's legacy category 0, type 6: `uipath-json-similarity` from 0 to 100.",
	keys:     legacyKeys,
	criteria: []key{expectedOutputKey},
}

// legacyJSONSimilarity is jsonSimilarity from 0 to 100. A path that is missing gives an empty
// object on its own side.
func legacyJSONSimilarity(e *evaluator, c *config) {
	l := readLegacy(e, c)
	e.score = func(ctx context.Context, s Subject, criteria *object) outcome {
		expected, actual, err := sides(s, criteria)
		if err != nil {
			return outcome{err: err}
		}
		if expected, err = resolve(expected, l.path); err != nil {
			expected = newObject()
		}
		if actual, err = resolve(actual, l.path); err != nil {
			actual = newObject()
		}
		return l.compare(expected, actual, Includes, func(e, a any) outcome {
			matched, total, err := similarity(ctx, e, a)
			if err != nil {
				return outcome{err: err}
			}
			return outcome{
				score:   share(matched, total),
				shown:   share(matched, total) * legacyScale,
				details: fmt.Sprintf("Matched leaves: %s, Total leaves: %s", reprFloat(matched), reprFloat(total)),
			}
		})
	}
}

var legacyCSVType = evaluatorType{
	read:  legacyCSV,
	about: "UiPath's legacy category 0, type 10: scores 100 if columns of the first row of a CSV text are the same on both sides; line by line, the share of rows.",
	keys: append([]key{
		{name: "targetSubOutputKey", kind: input.String, required: true, about: "the names of the columns, separated by commas, in any case"},
	}, legacyKeys...),
	criteria: []key{expectedOutputKey},
}

// legacyCSV scores 100 if the named columns of the first data row are the same on both sides; line
// by line it compares every row.
func legacyCSV(e *evaluator, c *config) {
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
	e.score = func(_ context.Context, s Subject, criteria *object) outcome {
		expected, actual, err := sides(s, criteria)
		if err != nil {
			return outcome{err: err}
		}
		if actual, err = resolve(actual, l.path); err != nil {
			return failed("TARGET_OUTPUT_KEY_NOT_FOUND: %q in the actual output: %w", l.path, err)
		}
		if part, err := resolve(expected, l.path); err == nil {
			expected = part
		}
		expectedText, actualText := csvText(expected), csvText(actual)
		if strings.TrimSpace(expectedText) == "" || strings.TrimSpace(actualText) == "" {
			return failed("the CSV text is empty")
		}
		if l.lines != "" {
			return csvRows(expectedText, actualText, l.lines, columns)
		}
		return csvRow(expectedText, actualText, columns)
	}
}

// csvText finds the CSV text in an output: the content of an object, or the output itself.
func csvText(v any) string {
	if o, ok := v.(*object); ok {
		if content, ok := o.Values["content"]; ok {
			v = content
		}
	}
	return str(v)
}

func csvRow(expected, actual string, columns []string) outcome {
	a, err := csvValues(actual, columns)
	if err != nil {
		return failed("the actual CSV: %w", err)
	}
	e, err := csvValues(expected, columns)
	if err != nil {
		return failed("the expected CSV: %w", err)
	}
	same := slices.Equal(e, a)
	return outcome{score: truth(same), shown: same, compared: &compared{record(columns, e), record(columns, a), Equals}}
}

// record is a row of a table as an object.
func record(columns, values []string) *object {
	o := newObject()
	for i, column := range columns {
		o.set(column, values[i])
	}
	return o
}

// csvRows compares every data row under its own side's header; a row that only one side has scores
// 0.
func csvRows(expected, actual, delimiter string, columns []string) outcome {
	e, a := splitLines(expected, delimiter), splitLines(actual, delimiter)
	if len(e) == 0 || len(a) == 0 {
		return failed("the CSV text needs a header row")
	}
	return averageLines(e[1:], a[1:], func(expectedRow, actualRow string) outcome {
		return csvRow(e[0]+"\n"+expectedRow, a[0]+"\n"+actualRow, columns)
	})
}

// csvValues gives the trimmed values of the columns in the first data row. Column names are found
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
		index[toLower(name)] = i
	}
	var missing []string
	for _, column := range columns {
		if _, ok := index[toLower(column)]; !ok {
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
		if at := index[toLower(column)]; at < len(row) {
			values[i] = strings.TrimSpace(row[at])
		}
	}
	return values, nil
}
