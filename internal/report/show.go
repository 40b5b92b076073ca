package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	verdicts "github.com/evalrun/evalrun/eval/verdict"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/schemas"
)

// WriteRollouts writes everything about the rollouts that are chosen, for people, and returns how
// many there were.
func (r *Report) WriteRollouts(w io.Writer, s Showing, chosen func(*schemas.Rollout) bool) (n int, err error) {
	c, err := r.census()
	if err != nil {
		return 0, err
	}
	out, x := &lines{w: w}, explainer{r, c, s}
	err = r.Rollouts(func(one *schemas.Rollout) error {
		if !chosen(one) {
			return nil
		}
		if n++; n > 1 {
			out.printf("\n")
		}
		x.whole(one).text(out, s.Terminal)
		return out.err
	})
	return n, err
}

// whole has everything that a person may want to know of a rollout: the content of failure, with
// nothing cut.
func (x explainer) whole(one *schemas.Rollout) failure {
	brief := x.failure(one)
	f := failure{verdict: brief.verdict, label: brief.label, title: brief.title, reasons: brief.reasons}
	if x.verdict(one) == passed && !EvaluatorFailed(one) {
		f.reasons = nil // there is nothing to be explained
	}
	for _, e := range one.EvaluationRunResults {
		best := 1.0
		if e.Result.Scale != 0 {
			best = e.Result.Scale
		}
		if !e.IsLineResult && e.Result.Score != nil && *e.Result.Score >= best {
			f.reasons = append(f.reasons, redact.Line(e.EvaluatorName)+" "+formatScore(e.Result.Score))
			for _, said := range saidByJudges(e.Result) {
				f.reasons = append(f.reasons, "  "+said)
			}
		}
	}
	f.add("run", x.RunID)
	f.add("rollout", one.RolloutID+", "+redact.Line(one.Agent)+", epoch "+strconv.Itoa(one.Epoch))
	if one.TaskSource != nil {
		f.add("task", redact.Line(one.TaskSource.String()))
	} else {
		f.add("task", redact.Line(one.TaskDigest))
	}
	f.add("image", redact.Line(one.Image))
	f.add("tags", redact.Line(strings.Join(one.Tags, ", ")))
	f.add("started", localTime(one.StartedAt))
	f.add("finished", localTime(one.FinishedAt))
	f.add("time", times(one))
	for _, resumed := range one.ResumedBy {
		f.add("resumed", fmt.Sprintf("segment %d %s", resumed.Segment, localTime(resumed.At)))
	}
	for _, step := range one.Steps {
		f.add("step", redact.Line(step.Name+" "+formatScore(step.Reward)+" "+step.Error))
	}
	f.add("input", pretty(one.Inputs))
	f.add("expected", pretty(one.ExpectedOutput))
	for _, id := range slices.Sorted(maps.Keys(one.Criteria)) {
		if criteria := pretty(one.Criteria[id]); criteria != "" {
			f.add("criteria", redact.Line(id)+": "+criteria)
		}
	}
	if o := one.AgentExecutionOutput; o != nil && o.Result.Status == schemas.Successful {
		f.add("output", pretty(o.Result.Output))
	}
	for _, fact := range brief.facts {
		switch fact[0] {
		case "stderr", "verifier", "ended by":
			f.add(fact[0], fact[1])
		}
	}
	for _, log := range one.Logs {
		if local, err := filepath.Localize(log); err == nil && x.storeDir != "" {
			f.add("file", place(filepath.Join(x.storeDir, local), x.showing.Dir, x.storeDir))
		}
	}
	if log := x.verifierLog(one); log != "" {
		f.add("file", place(log, x.showing.Dir, x.storeDir))
	}
	f.add("again", x.again(one))
	return f
}

// times says where a rollout's time went.
func times(one *schemas.Rollout) string {
	c := one.Clocks
	out := formatDuration(milliseconds(c.WorkingMs)) + " working"
	for _, more := range []struct {
		ms   int64
		what string
	}{{c.WaitingMs, "waiting"}, {c.QueuedMs, "queued"}, {c.EvaluatingMs, "scoring"}} {
		if more.ms >= 50 { // less would be shown as 0.0s
			out += ", " + formatDuration(milliseconds(more.ms)) + " " + more.what
		}
	}
	return out + ", " + count(one.Segments, "segment")
}

func localTime(t *time.Time) string {
	if t == nil {
		return ""
	}
	return t.Local().Format("2006-01-02 15:04:05 MST")
}

// pretty writes a JSON value in as many lines as it takes. It writes a text as itself.
func pretty(raw json.RawMessage) string {
	if v, ok := decode(raw); ok {
		if text, ok := v.(string); ok {
			return strings.Join(rawLines(text), "\n")
		}
	}
	if brief := oneValue(raw); brief == "" || cells(brief) <= valueWidth {
		return brief
	}
	var b bytes.Buffer
	if json.Indent(&b, raw, "", "  ") != nil {
		return ""
	}
	return strings.Join(rawLines(b.String()), "\n")
}

// rawLines returns the lines of a text, harmless and whole.
func rawLines(text string) (out []string) {
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		out = append(out, redact.Terminal(visible(line)))
	}
	return out
}

// DefaultFailures is how many failures are explained at length by default.
const DefaultFailures = 10

// Showing says how a report is shown. The zero value shows everything at any width.
type Showing struct {
	// Failures is how many failures are explained at length; below 0 means all.
	Failures int
	// Resume is the command that goes on with the run, empty if it is not to be named.
	Resume string
	// Triggers is the command that shows what the run waits for, empty if it is not to be named.
	Triggers string
	// Dir is the folder from which files are named; empty means the store's own.
	Dir string
	// Last, if not empty, are lines before the summary.
	Last string
	// Judgement is the verdict, if it is known; nil means that of a run that may lack nothing.
	Judgement *verdicts.Judgement
	// Accept is what the run may lack.
	Accept verdicts.Accept
	Terminal
}
