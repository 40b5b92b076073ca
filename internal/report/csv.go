package report

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"io"
	"strconv"
	"strings"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/schemas"
)

var csvColumns = []string{
	"run_id", "evaluation_id", "evaluation_name", "rollout_id", "agent", "epoch", "status", "rollout_score",
	"evaluator_id", "evaluator_name", "is_line_result", "score", "scale", "evaluation_time", "evaluator_error", "not_run",
	"error_category", "error_message", "waiting_for", "segments",
	"wall_ms", "working_ms", "waiting_ms", "queued_ms", "evaluating_ms",
	"input_tokens", "cached_input_tokens", "output_tokens", "cost", "judge_cost", "input", "output", "expected", "reason"}

// WriteCSV writes one row for each rollout and evaluator, and one for each rollout without a
// result.
func (r *Report) WriteCSV(w io.Writer) error {
	out := csv.NewWriter(w)
	if err := out.Write(csvColumns); err != nil {
		return err
	}
	if err := r.Rollouts(func(one *schemas.Rollout) error {
		if len(one.EvaluationRunResults) == 0 {
			return out.Write(csvRow(r.RunID, one, nil))
		}
		for i := range one.EvaluationRunResults {
			if err := out.Write(csvRow(r.RunID, one, &one.EvaluationRunResults[i])); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	out.Flush()
	return out.Error()
}

func csvRow(runID string, one *schemas.Rollout, e *schemas.Evaluated) []string {
	row := []string{runID, one.EvaluationID, one.EvaluationName, one.RolloutID, one.Agent,
		strconv.Itoa(one.Epoch), string(one.Status), number(one.Score)}
	if e != nil {
		scale := 1.0
		if e.Result.Scale != 0 {
			scale = e.Result.Scale
		}
		row = append(row, e.EvaluatorID, e.EvaluatorName,
			strconv.FormatBool(e.IsLineResult), number(e.Result.Score), number(&scale),
			number(&e.Result.EvaluationTime), e.Result.Error, e.Result.NotRun)
	} else {
		row = append(row, make([]string, 8)...)
	}
	category, message, waiting := "", "", ""
	if one.Error != nil {
		category, message = one.Error.Category, one.Error.Message
	}
	if len(TriggersOf(one)) > 0 {
		waiting = waitingFor(one)[len("waiting for "):]
	}
	row = append(row, category, message, waiting, strconv.Itoa(one.Segments))
	for _, ms := range []int64{
		one.Clocks.WallMs, one.Clocks.WorkingMs, one.Clocks.WaitingMs, one.Clocks.QueuedMs, one.Clocks.EvaluatingMs,
	} {
		row = append(row, strconv.FormatInt(ms, 10))
	}
	if one.Usage != nil && one.Usage.Total != nil {
		u := one.Usage.Total
		for _, n := range []int64{u.InputTokens, u.CachedInputTokens, u.OutputTokens} {
			row = append(row, strconv.FormatInt(n, 10))
		}
		row = append(row, number(u.Cost))
	} else {
		row = append(row, make([]string, 4)...)
	}
	row = append(row, csvContent(one, e)...)
	for i := range row {
		row[i] = cell(row[i])
	}
	return row
}

// csvContent returns the cost of a judge, the evaluation's input, the agent's output, the output
// that was expected, and what the evaluator found.
func csvContent(one *schemas.Rollout, e *schemas.Evaluated) []string {
	cost, expected, reason, output := "", one.ExpectedOutput, "", json.RawMessage(nil)
	if o := one.AgentExecutionOutput; o != nil && o.Result.Status == schemas.Successful {
		output = o.Result.Output
	}
	switch {
	case e != nil:
		if c := e.Result.Comparison; c != nil {
			expected = c.Expected
		} else if criteria, ok := one.Criteria[e.EvaluatorID]; ok && len(expected) == 0 {
			expected = criteria
		}
		reason = strings.Join(foundBy(e.Result), "; ")
		if e.Result.Judge != nil {
			cost = number(eval.CostOf(e.Result.Judge.Verdicts))
		}
	case one.Error != nil:
		reason = one.Error.Message
	}
	return []string{cost, csvValue(one.Inputs), csvValue(output), csvValue(expected), reason}
}

// csvValue writes a JSON value in a cell: a text as itself, anything else as JSON, and null or
// nothing as an empty cell.
func csvValue(raw json.RawMessage) string {
	v, ok := decode(raw)
	if text, isText := v.(string); isText {
		return text
	}
	var b bytes.Buffer
	if !ok || v == nil || json.Compact(&b, raw) != nil {
		return ""
	}
	return b.String()
}

// cell makes a text harmless to a terminal, and keeps spreadsheets from taking it for a formula.
// A tab begins a formula too (OWASP, CSV injection).
func cell(s string) string {
	s = redact.Terminal(s)
	if s == "" || !strings.ContainsRune("=+-@\t", rune(s[0])) {
		return s
	}
	if _, err := strconv.ParseFloat(s, 64); err == nil {
		return s
	}
	return "'" + s
}

func number(v *float64) string {
	if v == nil {
		return ""
	}
	return strconv.FormatFloat(*v, 'f', -1, 64)
}
