package report

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/evalrun/evalrun/eval/stats"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/schemas"
)

// verdict is what a person wants to know of a rollout, in one word.
type verdict string

const (
	passed   verdict = "passed"
	failed   verdict = "failed"
	unscored verdict = "unscored"
	// finished is only the colour of a run without a verdict.
	finished verdict = "finished"
)

// verdict is passed, failed or unscored for a completed rollout, else its state.
func (r *Report) verdict(one *schemas.Rollout) verdict {
	switch {
	case one.Status != schemas.StateCompleted:
		return verdict(one.Status)
	case one.Score == nil:
		return unscored
	case one.Failed(r.Pass):
		return failed
	}
	return passed
}

// census is what must be known about all rollouts before the first is written.
type census struct {
	total    int
	verdicts map[verdict]int
	// broken counts the unscored rollouts of which an evaluator failed, partly those that have passed
	// although an evaluator was not run.
	broken, partly int
	working        time.Duration
	// agents and epochs say that there are several, so that rollouts have to be told apart.
	agents, epochs bool
	agent          string
	// awaited counts what suspended rollouts, and evaluators, wait for.
	awaited Awaited
}

func (r *Report) census() (census, error) {
	c := census{verdicts: map[verdict]int{}}
	err := r.Rollouts(func(one *schemas.Rollout) error {
		c.agents = c.agents || c.total > 0 && one.Agent != c.agent
		c.agent = one.Agent
		c.epochs = c.epochs || one.Epoch > 1
		c.total++
		v := r.verdict(one)
		c.verdicts[v]++
		if v == unscored && EvaluatorFailed(one) {
			c.broken++
		}
		if v == passed && !r.failed(one) && EvaluatorNotRun(one) {
			c.partly++
		}
		if waits(one) {
			for _, t := range TriggersOf(one) {
				c.awaited.Add(t.Type, 1)
			}
		}
		c.working += time.Duration(one.Clocks.WorkingMs) * time.Millisecond
		return nil
	})
	return c, err
}

// label names a rollout, with agent and epoch where there are several. It is one line.
func (c census) label(one *schemas.Rollout) string {
	name := one.EvaluationName
	if strings.TrimSpace(name) == "" {
		name = one.EvaluationID
	}
	var more []string
	if c.agents {
		more = append(more, one.Agent)
	}
	if c.epochs {
		more = append(more, "epoch "+strconv.Itoa(one.Epoch))
	}
	if len(more) > 0 {
		name += " [" + strings.Join(more, ", ") + "]"
	}
	return redact.Line(name)
}

// String counts the rollouts in words.
func (c census) String() string {
	out := count(c.total, "rollout")
	sep := ": "
	for _, v := range []verdict{passed, failed, unscored, verdict(schemas.StateSuspended), verdict(schemas.StateScoring), verdict(schemas.StateFaulted), verdict(schemas.StateCancelled),
		verdict(schemas.StateRunning), verdict(schemas.StateEvaluating), verdict(schemas.StatePending)} {
		if n := c.verdicts[v]; n > 0 {
			out += fmt.Sprintf("%s%d %s", sep, n, v)
			sep = ", "
		}
	}
	return out
}

// reason says in one line why a rollout is where it is.
func reason(one *schemas.Rollout) string {
	switch {
	case waits(one):
		return waitingFor(one)
	case one.Error != nil:
		return faultLine(one.Error)
	}
	var out []string
	for _, e := range one.EvaluationRunResults {
		switch {
		case e.IsLineResult:
		case e.Result.Error != "" && e.Result.Score == nil:
			out = append(out, e.EvaluatorName+" failed: "+e.Result.Error)
		case e.Result.Error != "":
			out = append(out, e.EvaluatorName+" "+formatScore(e.Result.Score)+": "+e.Result.Error)
		case e.Result.Score != nil:
			out = append(out, e.EvaluatorName+" "+formatScore(e.Result.Score))
		}
	}
	if missing := notRun(one); missing != "" {
		out = append(out, missing)
	}
	if len(out) == 0 && one.Status == schemas.StateCompleted && one.Criteria != nil {
		out = []string{"no criterion for any evaluator"}
		if has := slices.Sorted(maps.Keys(one.Criteria)); len(has) > 0 {
			out[0] += " (has: " + strings.Join(has, ", ") + ")"
		}
	}
	return redact.Line(strings.Join(out, ", "))
}

// notRun says in one line which evaluators of a rollout were not run, and why.
func notRun(one *schemas.Rollout) string {
	var out []string
	for _, e := range one.EvaluationRunResults {
		if !e.IsLineResult && e.Result.NotRun != "" {
			out = append(out, e.EvaluatorName+" not run: "+e.Result.NotRun)
		}
	}
	return redact.Line(strings.Join(out, ", "))
}

// faultLine says why something has failed, what was printed last on stderr first.
func faultLine(f *schemas.Fault) string {
	message, stderr, _ := strings.Cut(f.Message, stderrMark)
	if all := textLines(stderr); len(all) > 0 {
		message = all[len(all)-1] + "; " + strings.TrimRight(message, "; ")
	}
	return redact.Line(f.Category + ": " + message)
}

// EvaluatorFailed reports whether an evaluator failed, so that the score leaves it out.
func EvaluatorFailed(one *schemas.Rollout) bool {
	return slices.ContainsFunc(one.EvaluationRunResults, func(e schemas.Evaluated) bool { return e.Result.Score == nil && e.Result.Error != "" })
}

// waits says that an agent or an evaluator of the rollout waits.
func waits(one *schemas.Rollout) bool {
	return one.Status == schemas.StateSuspended || one.Status == schemas.StateScoring
}

// TriggersOf are what the agent or the evaluators of a rollout wait for.
func TriggersOf(one *schemas.Rollout) []schemas.Trigger {
	if one.Status == schemas.StateScoring {
		return one.EvaluatorTriggers
	}
	if one.AgentExecutionOutput == nil {
		return nil
	}
	return one.AgentExecutionOutput.Result.Triggers
}

// waitName is how many characters of the name of a wait a line has.
const waitName = 80

// nameOf is what people know a wait by, else the key of its job.
func nameOf(t schemas.Trigger) string {
	if names := wait.Names(t.Payload); len(names) > 0 {
		return shorten(redact.Line(names[0]), waitName)
	}
	return t.ItemKey
}

// waitingFor names the triggers of a rollout that waits.
func waitingFor(one *schemas.Rollout) string {
	triggers := TriggersOf(one)
	if len(triggers) == 0 {
		return "waiting"
	}
	out := "waiting for " + triggers[0].Type + " " + nameOf(triggers[0])
	if len(triggers) > 1 {
		out += fmt.Sprintf(" and %d more", len(triggers)-1)
	}
	return redact.Line(out)
}

func formatScore(score *float64) string {
	if score == nil {
		return "-"
	}
	return strconv.FormatFloat(round(*score), 'f', -1, 64)
}

// round keeps four decimals, enough for a person.
func round(v float64) float64 {
	out, err := strconv.ParseFloat(strconv.FormatFloat(v, 'f', 4, 64), 64)
	if err != nil {
		return v
	}
	return out
}

// formatMean is a mean and its standard error.
func formatMean(e stats.Estimate) string {
	if e.Mean == nil {
		return "-"
	}
	out := strconv.FormatFloat(*e.Mean, 'f', 3, 64)
	if e.StandardError != nil {
		out += " ± " + strconv.FormatFloat(*e.StandardError, 'f', 3, 64)
	}
	return out
}

// formatPassRate is the share that passes and its 95 % interval.
func formatPassRate(e stats.Estimate) string {
	if e.Mean == nil {
		return "-"
	}
	out := percent(*e.Mean)
	if e.Low != nil && e.High != nil {
		out += " [" + percent(*e.Low) + ", " + percent(*e.High) + "]"
	}
	return out
}

func percent(share float64) string { return strconv.FormatFloat(100*share, 'f', 0, 64) + "%" }

// formatDuration is short: 0.4s, 12.3s, 1m32s.
func formatDuration(d time.Duration) string {
	if d < time.Minute {
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + "s"
	}
	return d.Round(time.Second).String()
}

func milliseconds(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// shorten cuts a line to a number of characters.
func shorten(s string, most int) string {
	runes := []rune(s)
	if len(runes) <= most {
		return s
	}
	return string(runes[:max(most-1, 0)]) + "…"
}
