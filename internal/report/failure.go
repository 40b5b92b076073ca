package report

import (
	"bytes"
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/schemas"
)

// failures calls f with the failures to show, and returns how many more there are.
func (x explainer) failures(f func(failure) error) (more int, err error) {
	shown := 0
	err = x.Rollouts(func(one *schemas.Rollout) error {
		if !x.failed(one) {
			return nil
		}
		if x.showing.Failures >= 0 && shown >= x.showing.Failures {
			more++
			return nil
		}
		shown++
		return f(x.failure(one))
	})
	return more, err
}

// failure explains a rollout that has not passed, or has not ended.
func (x explainer) failure(one *schemas.Rollout) failure {
	f := failure{verdict: x.verdict(one), label: x.census.label(one)}
	f.title = string(f.verdict)
	if one.Score != nil {
		f.title += ", score " + formatScore(one.Score)
	}
	switch {
	case waits(one):
		f.waits(one)
	case one.Error != nil:
		f.fault(one.Error)
	default:
		f.evaluators(one)
	}
	if refused := one.RefusedConnections.String(); refused != "" {
		f.reasons = append(f.reasons, redact.Line(refused))
	}
	f.reasons = append(f.reasons, notOffered(one.MCPServers)...)
	if one.Limit != nil {
		f.add("ended by", redact.Line(one.Limit.Error()))
	}
	f.add("input", oneValue(one.Inputs))
	if one.Status == schemas.StateCompleted && !hasComparison(one) && one.AgentExecutionOutput != nil {
		f.add("output", oneValue(one.AgentExecutionOutput.Result.Output))
	}
	x.logs(&f, one)
	f.add("again", x.again(one))
	return f
}

// fault puts the last line of stderr first, since it most often has the reason.
func (f *failure) fault(fault *schemas.Fault) {
	f.title += " (" + redact.Line(fault.Category) + ")"
	message, stderr, _ := strings.Cut(fault.Message, stderrMark)
	all := textLines(stderr)
	if len(all) > 0 {
		f.reasons = append(f.reasons, all[len(all)-1])
	}
	f.reasons = append(f.reasons, textLines(strings.TrimRight(message, "; "))...)
	if len(all) > 1 {
		f.add("stderr", strings.Join(all[max(0, len(all)-logLines):], "\n"))
	}
}

func (f *failure) waits(one *schemas.Rollout) {
	for _, t := range TriggersOf(one) {
		line := "waiting for " + t.Type + " " + t.ItemKey
		if t.ResumeTime != nil {
			line += ", at " + t.ResumeTime.UTC().Format(time.RFC3339)
		}
		if t.Deadline != nil {
			line += ", until " + t.Deadline.UTC().Format(time.RFC3339)
		}
		f.reasons = append(f.reasons, redact.Line(line))
		if payload := oneValue(t.Payload); payload != "" && payload != "null" {
			f.reasons = append(f.reasons, "  "+payload)
		}
	}
}

// WorstFirst orders the results of a rollout's evaluators as its explanation does: those that
// failed, then lower scores before higher ones, and those not run last.
func WorstFirst(all []schemas.Evaluated) []schemas.Evaluated {
	order := func(r schemas.EvaluationResult) float64 {
		switch {
		case r.NotRun != "":
			return math.Inf(1)
		case r.Score == nil:
			return -1
		}
		return *r.Score / cmp.Or(r.Scale, 1)
	}
	return slices.SortedStableFunc(slices.Values(all), func(a, b schemas.Evaluated) int {
		return cmp.Compare(order(a.Result), order(b.Result))
	})
}

// evaluators says what each evaluator found that did not give its best score, the worst first.
func (f *failure) evaluators(one *schemas.Rollout) {
	for _, e := range WorstFirst(one.EvaluationRunResults) {
		if e.IsLineResult {
			continue // the result of the whole includes its lines
		}
		name := redact.Line(e.EvaluatorName)
		result := e.Result
		best := 1.0
		if result.Scale != 0 {
			best = result.Scale
		}
		var found []string
		switch {
		case result.NotRun != "":
			f.reasons = append(f.reasons, name+" not run: "+redact.Line(result.NotRun))
			continue
		case result.Score == nil:
			name += " failed"
			found = textLines(result.Error)
		case *result.Score >= best:
			continue
		default:
			name += " " + formatScore(result.Score)
			if best != 1 {
				name += " of " + formatScore(&best)
			}
			found = findings(result)
		}
		if len(found) == 1 {
			f.reasons = append(f.reasons, name+": "+found[0])
			continue
		}
		f.reasons = append(f.reasons, name)
		for _, line := range found {
			f.reasons = append(f.reasons, "  "+line)
		}
	}
	if len(f.reasons) == 0 {
		f.reasons = textLines(reason(one))
	}
}

// foundBy says what an evaluator found about a score that is not the best, and what judges say of
// any score.
func foundBy(result schemas.EvaluationResult) []string {
	if s := result.Score; s != nil && *s >= cmp.Or(result.Scale, 1) {
		return saidByJudges(result)
	}
	return findings(result)
}

// findings says what an evaluator found about a score that is not the best.
func findings(result schemas.EvaluationResult) (out []string) {
	if result.Error != "" {
		return textLines(result.Error)
	}
	if failed := failedChecks(result.Details); failed != nil {
		return failed
	}
	if said := saidByJudges(result); said != nil {
		return said
	}
	c := result.Comparison
	if details, ok := decode(result.Details); c == nil && ok {
		// A program may give its details in the same form.
		o, _ := details.(map[string]any)
		expected, hasExpected := o["expected"]
		actual, hasActual := o["actual"]
		suspicious, _ := o["suspicious"].(string)
		switch {
		case suspicious != "":
			return []string{redact.Line("suspicious 0, the tests may have lacked what they need: " + suspicious)}
		case hasExpected && hasActual:
			c = &eval.Comparison{Expected: inJSON(expected), Actual: inJSON(actual), Relation: eval.Equals}
		case details != nil:
			if text, ok := details.(string); ok {
				return textLines(middle(text, longWidth))
			}
			return []string{oneValue(result.Details)}
		}
	}
	if c != nil {
		out = differences(c)
	}
	for i := range out {
		out[i] = redact.Line(out[i])
	}
	return out
}

func hasComparison(one *schemas.Rollout) bool {
	return slices.ContainsFunc(one.EvaluationRunResults, func(e schemas.Evaluated) bool {
		return e.Result.Comparison != nil
	})
}

func inJSON(v any) json.RawMessage {
	data, err := jsonobj.Marshal(v)
	if err != nil {
		return nil // the value came from JSON
	}
	return data
}

// oneValue writes a JSON value in one line. It is empty for a value that says nothing.
func oneValue(raw []byte) string {
	v, ok := decode(raw)
	if !ok {
		return ""
	}
	if o, isObject := v.(map[string]any); v == nil || isObject && len(o) == 0 {
		return ""
	}
	if text, ok := v.(string); ok {
		return redact.Line(quoted(middle(text, longWidth)))
	}
	var b bytes.Buffer
	_ = json.Compact(&b, raw) // it has just been decoded
	return redact.Line(visible(middle(b.String(), longWidth)))
}

// again is the command that repeats an evaluation, or empty if it is not known.
func (x explainer) again(one *schemas.Rollout) string {
	words := slices.Clone(x.CommandLine)
	if len(words) == 0 {
		return ""
	}
	at := slices.Index(words, "--")
	if at < 0 {
		at = len(words)
	}
	id := one.EvaluationID
	if strings.ContainsAny(id, ",\"\r\n") || id != strings.TrimSpace(id) { // --eval-id takes a line of CSV
		id = `"` + strings.ReplaceAll(id, `"`, `""`) + `"`
	}
	more := []string{"--eval-id", id}
	for _, a := range x.Agents {
		if a.Name == one.Agent && (a.Option != "" || len(x.Agents) > 1) {
			more = append(more, "--agent", a.Name)
			if a.Option != "" {
				more[len(more)-1] = a.Option
			}
		}
	}
	return redact.Line(ShellWords(slices.Insert(words, at, more...)))
}

// ShellWords quotes words as one types them in a shell.
func ShellWords(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		if quoted[i] = w; w == "" ||
			strings.Trim(w, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=@%+,") != "" {
			quoted[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(quoted, " ")
}

// failedChecks returns the reasons of the checks that have not passed, nil if the details are not those
// of checks.
func failedChecks(details json.RawMessage) (out []string) {
	var found struct {
		Checks []struct {
			Passed bool   `json:"passed"`
			Reason string `json:"reason"`
		} `json:"checks"`
	}
	if json.Unmarshal(details, &found) != nil { // another form
		return nil
	}
	for _, one := range found.Checks {
		if !one.Passed && one.Reason != "" {
			out = append(out, redact.Line(middle(one.Reason, longWidth)))
		}
	}
	return out
}
