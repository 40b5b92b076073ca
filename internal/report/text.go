package report

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/schemas"
)

// census is the part of all rollouts that must be known before the first is written.
type census struct {
	total    int
	verdicts map[verdict]int
	// broken counts the unscored rollouts with an evaluator that failed, partly those that passed
	// although an evaluator was not run.
	broken, partly int
	working        time.Duration
	// agents and epochs are set if there are several, so that rollouts have to be told apart.
	agents, epochs bool
	agent          string
	// awaited counts the triggers that suspended rollouts, and evaluators, wait for.
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
				c.awaited.add(t)
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
	for _, v := range []verdict{
		passed, failed, unscored,
		verdict(schemas.StateSuspended), verdict(schemas.StateScoring),
		verdict(schemas.StateFaulted), verdict(schemas.StateCancelled),
		verdict(schemas.StateRunning), verdict(schemas.StateEvaluating), verdict(schemas.StatePending),
	} {
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

// faultLine says why something failed. The last line of stderr comes first.
func faultLine(f *schemas.Fault) string {
	message, stderr, _ := strings.Cut(f.Message, stderrMark)
	if all := textLines(stderr); len(all) > 0 {
		message = all[len(all)-1] + "; " + strings.TrimRight(message, "; ")
	}
	return redact.Line(f.Category + ": " + message)
}

// waitName is the most characters of a wait's name in a line.
const waitName = 80

// nameOf returns the name by which people know a wait, or else the key of its job.
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

// stderrMark stands in the message of a fault before the end of stderr.
const stderrMark = "stderr ends with:\n"
