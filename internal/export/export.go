// Package export writes reports in the formats of other programs: a log of Inspect (.eval), and
// trajectories of ATIF.
//
// Both are made from a [report.Report] and from the trajectories and traces of agents
// ([transcript]) in the files of the store. From a results document without its store they have
// only the tool calls, and say so. Nothing here changes a store.
package export

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"

	"github.com/evalrun/evalrun/schemas"
)

// stamp writes a time as both formats want it: ISO 8601.
func stamp(at *time.Time) string {
	if at == nil || at.IsZero() {
		return ""
	}
	return at.UTC().Format("2006-01-02T15:04:05.000000+00:00")
}

// text writes a JSON value for people: a string as it is, everything else as JSON. It is empty for
// null.
func text(raw json.RawMessage) string {
	var s string
	if len(raw) == 0 || string(raw) == "null" {
		return ""
	}
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil { // a document indents it
		return string(raw)
	}
	return b.String()
}

// object returns a JSON value as an object, with any other value as its only member.
func object(raw json.RawMessage) json.RawMessage {
	var o map[string]json.RawMessage
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return json.RawMessage("{}")
	case json.Unmarshal(raw, &o) == nil:
		return raw
	}
	out, _ := json.Marshal(map[string]json.RawMessage{"input": raw}) // raw is valid
	return out
}

// why says in one line why a rollout has no score that counts. It is empty if it was scored or may
// be.
func why(one *schemas.Rollout) string {
	switch {
	case one.Error != nil:
		return one.Error.Error()
	case one.Status == schemas.StateSuspended && one.AgentExecutionOutput != nil:
		return "suspended: it waits for " + waitsFor(one.AgentExecutionOutput.Result.Triggers)
	case one.Status == schemas.StateScoring:
		return "scoring: an evaluator waits for " + waitsFor(one.EvaluatorTriggers)
	case one.Status != schemas.StateCompleted:
		return string(one.Status) + ": the rollout has not ended with a result"
	}
	return ""
}

func waitsFor(triggers []schemas.Trigger) string {
	var out []string
	for _, t := range triggers {
		what := t.Type
		if t.ItemKey != "" {
			what += " " + t.ItemKey
		}
		out = append(out, what)
	}
	if len(out) == 0 {
		return "what has arrived by now"
	}
	return strings.Join(out, ", ")
}

// unscored says why each evaluator without a score has none.
func unscored(one *schemas.Rollout) map[string]string {
	out := map[string]string{}
	for _, r := range one.EvaluationRunResults {
		switch {
		case r.Result.Score != nil || r.IsLineResult:
		case r.Result.Error != "":
			out[r.EvaluatorName] = r.Result.Error
		case r.Result.NotRun != "":
			out[r.EvaluatorName] = "not run: " + r.Result.NotRun
		default:
			out[r.EvaluatorName] = "no score"
		}
	}
	return out
}

// scaled converts a score to the range from 0 to 1.
func scaled(r schemas.EvaluationResult) float64 {
	if r.Scale > 0 {
		return *r.Score / r.Scale
	}
	return *r.Score
}

func seconds(ms int64) float64 { return float64(ms) / 1000 }
