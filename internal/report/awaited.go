package report

import (
	"fmt"
	"strings"

	"github.com/evalrun/evalrun/internal/wait"
)

// Awaited counts what suspended rollouts wait for.
type Awaited struct{ Jobs, People, Timers int }

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

// String is like "2 jobs, 1 person"; "nothing" if there is nothing.
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
	if a.Timers > 0 {
		out = append(out, count(a.Timers, "timer"))
	}
	if len(out) == 0 {
		return "nothing"
	}
	return strings.Join(out, ", ")
}
