package report

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/schemas"
)

// Standing counts the work and the waits at one moment.
type Standing struct {
	// Running and Scoring count rollouts.
	Running, Scoring int
	// Runs counts the runs that wait for something.
	Runs    int
	Awaited Awaited
	// NextCheck is when a source is asked next, zero if none is.
	NextCheck time.Time
}

// StandingOf converts a standing of the store for people. A process that runs at most agents agents
// at once may hold more rollouts, which wait for their turn.
func StandingOf(s store.Standing, agents int) Standing {
	out := Standing{Running: s.Running - max(s.Own-agents, 0), Scoring: s.Evaluating, Runs: s.Runs, NextCheck: s.NextCheck}
	for typ, n := range s.Waiting {
		out.Awaited.Add(typ, n)
	}
	return out
}

// waiting is like "waiting: 2 jobs, 1 person; next check in 12 s".
func (s Standing) waiting(now time.Time) string {
	out := "waiting: " + s.Awaited.String()
	if !s.NextCheck.IsZero() {
		out += "; next check in " + shortDuration(max(s.NextCheck.Sub(now), 0))
	}
	return out
}

// Watching is like "watching 3 runs: 2 jobs, 1 person; next check in 12 s".
func (s Standing) Watching(now time.Time) string {
	if s.Runs == 0 {
		return "watching: no run waits for anything"
	}
	return "watching " + count(s.Runs, "run") + strings.TrimPrefix(s.waiting(now), "waiting")
}

// shortDuration is like 12 s, 3 min or 2 h.
func shortDuration(d time.Duration) string {
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", int(math.Ceil(d.Seconds())))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(math.Ceil(d.Minutes())))
	}
	return fmt.Sprintf("%d h", int(math.Ceil(d.Hours())))
}

// Awaited counts what suspended rollouts wait for.
type Awaited struct {
	Jobs, People, Timers int
	// Answers counts the answers of models that come in batches, and InputCost is about what their
	// requests cost, as far as that is known.
	Answers   int
	InputCost float64
}

// add counts a trigger of a document.
func (a *Awaited) add(t schemas.Trigger) {
	var batched wait.Batched
	if json.Unmarshal(t.Payload, &batched) != nil || !batched.Batch || t.Purpose != "" {
		a.Add(awaitedType(t), 1)
		return
	}
	a.Answers++
	if batched.InputCost != nil {
		a.InputCost += *batched.InputCost
	}
}

// Add counts n triggers of a type.
func (a *Awaited) Add(triggerType string, n int) {
	switch wait.Type(triggerType) {
	case wait.TypeTask:
		a.People += n
	case wait.TypeTimer:
		a.Timers += n
	default:
		a.Jobs += n
	}
}

// awaitedType is the type as which a trigger counts. Nobody has to answer what is played, so that it
// counts as a job.
func awaitedType(t schemas.Trigger) string {
	if t.Played != "" {
		return string(wait.TypeJob)
	}
	return t.Type
}

// String is like "2 jobs, 1 person", or "nothing" if nothing is waited for.
func (a Awaited) String() string {
	var out []string
	if a.Jobs > 0 {
		out = append(out, count(a.Jobs, "job"))
	}
	switch {
	case a.People == 1:
		out = append(out, "1 person")
	case a.People > 1:
		out = append(out, fmt.Sprintf("%d people", a.People))
	}
	if a.Answers > 0 {
		answers := count(a.Answers, "answer") + " in batches"
		if a.InputCost > 0 {
			answers += fmt.Sprintf(" (their input costs about $%.4f)", a.InputCost)
		}
		out = append(out, answers)
	}
	if a.Timers > 0 {
		out = append(out, count(a.Timers, "timer"))
	}
	if len(out) == 0 {
		return "nothing"
	}
	return strings.Join(out, ", ")
}
