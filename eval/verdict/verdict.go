// Package verdict gives the meaning of a run's state for the user who started it, and the words
// that tell it. Terminal, lists, Markdown, JUnit and pages all take both from here, so that no two
// of them can disagree. It judges the head of a results document and reads nothing else.
package verdict

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/evalrun/evalrun/eval/summary"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/schemas"
)

// Verdict is the meaning of a run's state for the user who started it.
type Verdict int

// These are the verdicts. A run has the first that holds of Interrupted, Suspended, Faulted,
// Failed, Undecided, Passed and Finished.
const (
	// Passed: everything has finished, and the thresholds are met.
	Passed Verdict = iota
	// Failed: a threshold is not met.
	Failed
	// Undecided: the missing scores, or the interval, allow a threshold to be met or not.
	Undecided
	// Faulted: more rollouts faulted, or were not scored, than Accept allows.
	Faulted
	// Suspended: rollouts wait, or are worked on; resume the run later.
	Suspended
	// Interrupted: the work was ended before its time; the run can be resumed.
	Interrupted
	// Finished: everything has finished, and no threshold says whether that is good.
	Finished
)

// String returns the verdict as a word.
func (v Verdict) String() string {
	return [...]string{"passed", "failed", "undecided", "faulted", "suspended", "interrupted", "finished"}[v]
}

// ExitCode returns the exit code of a command that ends with the verdict.
func (v Verdict) ExitCode() int { return [...]int{0, 1, 5, 3, 75, 130, 0}[v] }

// These are the words of headlines, beside those of the verdicts. If the exit code is 3 the word
// says what is missing.
const (
	Running          = "running"
	FailsAlready     = "fails already"
	EvaluatorsFailed = "evaluators failed"
	EvaluatorsNotRun = "evaluators not run"
	NotAllScored     = "not all scored"
	NothingScored    = "nothing scored"
	Cancelled        = "cancelled"
)

// Words are all words that a headline may begin with.
var Words = []string{Running, FailsAlready, Interrupted.String(), Suspended.String(), Passed.String(),
	Failed.String(), Undecided.String(), Finished.String(), Faulted.String(),
	EvaluatorsFailed, EvaluatorsNotRun, NotAllScored, NothingScored, Cancelled}

// Judgement is the verdict on a run, with the words that tell it.
type Judgement struct {
	Verdict Verdict
	// Word is the verdict in a word or two, one of Words. Figures say how many or how much it is
	// about.
	Word, Figures string
	// Reason says at length why the verdict is what it is, if it needs a reason.
	Reason string
}

// Headline returns the verdict in one line.
func (j Judgement) Headline() string {
	switch {
	case j.Figures == "":
		return j.Word
	case j.Word == Finished.String():
		return j.Word + ", " + j.Figures
	}
	return j.Word + ": " + j.Figures
}

// Interrupt returns the judgement on a run whose work somebody ended before its time.
func Interrupt() Judgement {
	return Judgement{Verdict: Interrupted, Word: Interrupted.String(), Figures: "the run can be resumed"}
}

// Of judges a run by the head of its results document. example names an evaluation that has no score
// or an evaluator that was not run, with the reason; it may be empty. A document of version 1 has no
// statistics and so no verdict.
func Of(h *schemas.Head, accept Accept, example string) Judgement {
	if h.Statistics == nil {
		return Judgement{Verdict: Finished, Word: string(h.Status)}
	}
	r := run{h, h.Statistics, h.Statistics.Rollouts, accept}
	lost := r.gates(summary.GateFail)
	if !h.Final && !accept.Suspended {
		return r.open(lost)
	}
	if j, ok := r.missing(example); ok {
		if len(lost) > 0 {
			j.Figures = join(j.Figures, r.countGates(len(lost), "not met"))
		}
		return j
	}
	if len(lost) > 0 {
		return Judgement{Failed, Failed.String(), r.countGates(len(lost), "not met"), r.sentences(lost)}
	}
	if j, ok := r.failFast(); ok {
		return j
	}
	if open := r.gates(summary.GateUndecided); len(open) > 0 {
		return Judgement{Undecided, Undecided.String(), r.countGates(len(open), ""), r.sentences(open)}
	}
	if n := len(r.stats.Gates); n > 0 {
		return Judgement{Passed, Passed.String(), join(r.countGates(n, "met"), r.waits()), ""}
	}
	j := Judgement{Finished, Finished.String(), "no gate: " + r.passRates(), ""}
	switch {
	case !h.Final: // Accept allows it
		j.Word, j.Figures = Suspended.String(), join(r.waits(), j.Figures)
	case r.n.Cancelled > 0:
		j.Word, j.Figures = Cancelled, join(fmt.Sprintf("%d of %s", r.n.Cancelled, count(r.n.Total, "rollout")), j.Figures)
	}
	return j
}

// run is a run that is judged.
type run struct {
	*schemas.Head
	stats  *summary.Summary
	n      summary.RolloutCounts
	accept Accept
}

// open judges a run that goes on. It reports gates that are lost already.
func (r run) open(lost []summary.Gate) Judgement {
	j := Judgement{Verdict: Suspended, Word: Suspended.String(), Figures: r.waits()}
	if r.n.Open > 0 {
		j.Word, j.Figures = Running, join(count(r.n.Open, "rollout")+" to go", j.Figures)
	}
	if len(lost) > 0 {
		j.Word, j.Figures, j.Reason = FailsAlready,
			join(r.countGates(len(lost), "cannot be met"), j.Figures),
			"lost already: "+r.sentences(lost)
	}
	return j
}

// waits says how many rollouts wait for a job, a person or a score.
func (r run) waits() string {
	switch n := r.n.Suspended + r.n.Scoring; n {
	case 0:
		return ""
	case 1:
		return "1 rollout waits"
	default:
		return fmt.Sprintf("%d rollouts wait", n)
	}
}

// missing judges a run that lacks more than is accepted: nothing is green in silence.
func (r run) missing(example string) (j Judgement, ok bool) {
	c, told := r.stats.Coverage, ""
	if example != "" {
		told = " (" + example + ")"
	}
	faulted := func(word, figures, reason string, args ...any) (Judgement, bool) {
		return Judgement{Faulted, word, figures, fmt.Sprintf(reason, args...)}, true
	}
	share := func(n, of int, what string) string { return fmt.Sprintf("%d of %s", n, count(of, what)) }
	asked := c.EvaluatorErrors + c.EvaluatorResults
	switch {
	case r.accept.Faulted.exceeded(r.n.Faulted, r.n.Total):
		return faulted(Faulted.String(), share(r.n.Faulted, r.n.Total, "rollout"),
			"%s faulted", share(r.n.Faulted, r.n.Total, "rollout"))
	case r.accept.EvaluatorErrors.exceeded(c.EvaluatorErrors, asked):
		return faulted(EvaluatorsFailed, share(c.EvaluatorErrors, asked, "time"),
			"evaluators failed %s; --fail-on-evaluator-error allows some", share(c.EvaluatorErrors, asked, "time"))
	case c.Cancelled == c.Evaluations && len(r.stats.Gates) == 0: // the missing figures decide about gates
		return faulted(Cancelled, "nothing was scored", "nothing was scored: every evaluation was cancelled")
	case c.EvaluatorsNotRun > 0 && !r.accept.NotRun:
		asked += c.EvaluatorsNotRun
		return faulted(EvaluatorsNotRun, share(c.EvaluatorsNotRun, asked, "time"),
			"evaluators were not run %s%s; --allow-not-run accepts that", share(c.EvaluatorsNotRun, asked, "time"), told)
	case c.Unscored > 0 && r.accept.Unscored:
	case c.Unscored > 0:
		return faulted(NotAllScored, share(c.Unscored, c.Evaluations, "evaluation"),
			"%s could not be scored%s; --allow-unscored accepts that",
			share(c.Unscored, c.Evaluations, "evaluation"), told)
	case c.EvaluatorResults == 0 && c.Incomplete == 0 && c.Cancelled < c.Evaluations:
		return faulted(NothingScored, "", "nothing could be scored")
	}
	return j, false
}

// failFast judges a run with --fail-fast in which something failed. A failure is one even if it
// came last and left nothing to cancel: otherwise the verdict would depend on which of several
// agents is the fastest.
func (r run) failFast() (j Judgement, ok bool) {
	failed := r.n.Faulted > 0
	for _, a := range r.stats.PerAgent() {
		failed = failed || a.EvaluationsPassed < a.Coverage.Scored || a.Coverage.Unscored > 0
	}
	if !r.FailFast || !failed {
		return j, false
	}
	j = Judgement{Failed, Failed.String(), "--fail-fast", "--fail-fast: a rollout has failed"}
	if r.n.Cancelled > 0 {
		j.Figures = fmt.Sprintf("--fail-fast, %d of %s cancelled", r.n.Cancelled, count(r.n.Total, "rollout"))
		j.Reason += fmt.Sprintf(", and %d of %d were cancelled", r.n.Cancelled, r.n.Total)
	}
	return j, true
}

// Gates returns the thresholds of a run as they are judged under accept: without the evaluators
// that were not run, if these are accepted.
func Gates(s *summary.Summary, accept Accept) []summary.Gate {
	out := slices.Clone(s.Gates)
	for i := range out {
		if g := &out[i]; accept.NotRun && g.Ran != nil {
			g.Low, g.High, g.Verdict = g.Ran.Low, g.Ran.High, g.Ran.Verdict
		}
	}
	return out
}

// gates returns the thresholds that have a verdict.
func (r run) gates(verdict summary.GateVerdict) (out []summary.Gate) {
	for _, g := range Gates(r.stats, r.accept) {
		if g.Verdict == verdict {
			out = append(out, g)
		}
	}
	return out
}

func (r run) countGates(n int, what string) string {
	return strings.TrimSpace(fmt.Sprintf("%d of %s %s", n, count(len(r.stats.Gates), "gate"), what))
}

// sentences tell how thresholds were judged, and with several agents for which of them.
func (r run) sentences(gates []summary.Gate) string {
	var out []string
	for _, g := range gates {
		text := g.String()
		switch {
		case len(r.stats.Agents) == 0:
		case g.Agent == "":
			text = "all agents together: " + text
		default:
			text = redact.Line(g.Agent) + ": " + text
		}
		out = append(out, text)
	}
	return strings.Join(out, "; ")
}

// passRates returns the shares that have passed, for each agent.
func (r run) passRates() string {
	const most = 3
	agents := r.stats.PerAgent()
	if len(agents) > most {
		return fmt.Sprintf("%d agents", len(agents))
	}
	var out []string
	for _, a := range agents {
		text := "nothing scored"
		if a.PassRate.Mean != nil {
			text = percent(*a.PassRate.Mean) + " passed"
		}
		if len(agents) > 1 {
			text = redact.Line(a.Agent) + " " + text
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

// percent returns a share without decimals that is never rounded to all or to nothing.
func percent(share float64) string {
	if share > 0 && share < 1 {
		share = min(max(share, 0.01), 0.99)
	}
	return strconv.FormatFloat(100*share, 'f', 0, 64) + " %"
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// join puts a second thought after the first, if there is a first.
func join(first, second string) string {
	if second == "" || first == "" {
		return first + second
	}
	return first + "; " + second
}
