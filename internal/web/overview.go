package web

import (
	"slices"
	"time"

	"github.com/evalrun/evalrun/eval/summary"
	"github.com/evalrun/evalrun/internal/report"
	"github.com/evalrun/evalrun/runner"
	"github.com/evalrun/evalrun/schemas"
)

// statuses are the statuses of rollouts, in the order in which they are counted.
var statuses = []string{"passed", "failed", "faulted", "suspended", "scoring",
	"running", "evaluating", "pending", "unscored", "cancelled"}

// overview is a run at one revision, as lists need it: without the inputs and outputs of its
// agents. It never changes.
type overview struct {
	head        schemas.Head
	pass        float64
	judgement   runner.Judgement
	agents      []string
	evaluators  []evaluator
	evaluations []evaluation
	rows        []row
	tags        []string
	// causes are the reasons for which rollouts have not passed, and moreCauses counts those left out.
	causes     []cause
	moreCauses int
	// waits has the groups that the run waits for, and ends when it can be over.
	waits []waitGroup
	ends  ends
	// counts has the rollouts by status. size is about the number of bytes of the overview.
	counts map[string]int
	size   int
	// base is the first revision after which changes of rollouts are known.
	base int64
}

// evaluator is an evaluator of the run.
type evaluator struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// evaluation is an evaluation with the places of its rollouts among the rows.
type evaluation struct {
	ID   string   `json:"id"`
	Name string   `json:"name"`
	Tags []string `json:"tags,omitempty"`
	rows []int
}

// row is a rollout.
type row struct {
	report.Row
	evaluation, agent int
	// changed is the revision at which its current state was first seen, 0 if that is base or before
	// it.
	changed int64
}

// add puts a rollout at its place among the rows, which exists.
func (o *overview) add(r row, at int) {
	o.counts[r.Status]++
	o.size += 400 + len(r.Reason) + len(r.EvaluationName) + 40*len(r.Scores)
	o.rows[at] = r
}

// follow notes which rollouts have changed since an earlier overview of the run.
func (o *overview) follow(before *overview) {
	if len(before.rows) != len(o.rows) {
		return // the run is another one with the same id
	}
	o.base = before.base
	for i := range o.rows {
		if o.rows[i].changed = before.rows[i].changed; o.rows[i].differs(&before.rows[i]) {
			o.rows[i].changed = o.head.Revision
		}
	}
}

// differs reports whether the status or the score of a rollout differs from before.
func (r *row) differs(before *row) bool {
	return r.Status != before.Status || (r.Score == nil) != (before.Score == nil) ||
		r.Score != nil && *r.Score != *before.Score
}

func (o *overview) addTags(tags []string) {
	for _, tag := range tags {
		if !slices.Contains(o.tags, tag) {
			o.tags = append(o.tags, tag)
		}
	}
}

// rowOf returns the place of a rollout, -1 if the run has none with the id.
func (o *overview) rowOf(id string) int {
	return slices.IndexFunc(o.rows, func(r row) bool { return r.RolloutID == id })
}

// bad reports whether somebody has to look at a rollout: it has failed or faulted, or an evaluator
// that should have scored it did not.
func (r row) bad() bool {
	return r.Status == "failed" || r.Status == "faulted" || r.Status == "unscored" || len(r.Errors) > 0
}

// rank is the place of a rollout in the order in which people look at them: failed ones first.
func (r row) rank() int {
	switch {
	case r.Status == "failed":
		return 0
	case r.Status == "faulted":
		return 1
	case r.bad():
		return 2
	case r.Status == "suspended" || r.Status == "scoring":
		return 3
	case r.Status == "cancelled":
		return 5
	case r.Status == "passed":
		return 6
	}
	return 4
}

// good reports whether all rollouts have passed, and no evaluator failed.
func (o *overview) good() bool {
	return len(o.rows) > 0 && !slices.ContainsFunc(o.rows, func(r row) bool {
		return r.Status != "passed" || len(r.Errors) > 0
	})
}

// several reports whether the run has several agents.
func (o *overview) several() bool { return len(o.agents) > 1 }

// agentSummaries returns the statistics of each agent.
func (o *overview) agentSummaries() []summary.AgentSummary { return o.head.Statistics.PerAgent() }

// cause is a reason for which several rollouts have not passed.
type cause struct {
	// Name is the evaluator that gives it, empty for a fault. Text is the reason.
	Name, Text string
	Status     string
	N          int
	// Agents counts its rollouts for each agent, if there are several.
	Agents []asker
	// Named has the first of the evaluations. More counts the others.
	Named []namedRollout
	More  int
	// Different counts the reasons that were joined, 0 if there is one.
	Different int
	// URL is a link to the rollouts in the list.
	URL string

	evaluator   string
	evaluations map[int]bool
}

// ends says when the run can be over.
type ends struct {
	// NotBefore is the time of the last timer, zero if there is none. People counts those who are
	// asked.
	NotBefore time.Time
	People    int
}

// waitGroup is something that several rollouts wait for.
type waitGroup struct {
	Type, Name string
	// N counts the rollouts, each once however many of its triggers wait for this.
	N      int
	Oldest time.Time
	// NextCheck and Deadline are the earliest ones; zero if there is none.
	NextCheck, Deadline time.Time
	Answer              runner.Answer
}

// url returns the page of a rollout. from is the query of the list that leads there.
func (o *overview) url(at int, from string) string {
	u := "/runs/" + o.head.RunID + "/rollouts/" + o.rows[at].RolloutID
	if from != "" {
		u += "?" + from
	}
	return u
}

// rescored counts how many times a run was scored again, to the end.
func rescored(h schemas.Head) (n int) {
	for _, one := range h.Rescorings {
		if one.EndedAt != nil {
			n++
		}
	}
	return n
}

// namedRollout is an evaluation with the first of its rollouts.
type namedRollout struct{ ID, Name, URL string }

// asker is an agent with the number of its rollouts that ask the same.
type asker struct {
	Agent string
	N     int
}

// barPart is one colour of the status bar.
type barPart struct{ Status, X, Width string }

// statusCount counts the rollouts with a status. It is a filter, too.
type statusCount struct {
	Status  string
	N       int
	URL     string
	Pressed bool
	// Hidden is set if there is none. The script shows it once there is one.
	Hidden bool
}
