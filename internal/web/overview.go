package web

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/evalrun/evalrun/eval/summary"
	"github.com/evalrun/evalrun/internal/report"
	"github.com/evalrun/evalrun/internal/service"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/runner"
	"github.com/evalrun/evalrun/schemas"
)

// statuses are those of rollouts, in the order in which they are counted.
var statuses = []string{"passed", "failed", "faulted", "suspended", "scoring", "running", "evaluating", "pending", "unscored", "cancelled"}

// overview is a run at one revision, as lists need it: everything but what its agents were given and
// have made. It never changes.
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
	// waits is what the run waits for, and ends when it can be over.
	waits []waitGroup
	ends  ends
	// counts has the rollouts by status; size is about how many bytes the overview takes.
	counts map[string]int
	size   int
	// base is the revision from which on it is known which rollouts have changed.
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
	// changed is the revision at which it was first seen as it is, 0 if that is base or before it.
	changed int64
}

// newOverview reads a report.
func newOverview(r *runner.Report) (*overview, error) {
	o := &overview{head: r.Head(), pass: r.Pass(), counts: map[string]int{}}
	o.base = o.head.Revision
	var err error
	if o.judgement, err = r.Judge(runner.Accept{}); err != nil {
		return nil, err
	}
	for _, e := range o.head.Statistics.PerAgent()[0].Evaluators {
		o.evaluators = append(o.evaluators, evaluator{e.ID, e.Name})
	}
	for _, a := range o.head.Agents {
		o.agents = append(o.agents, a.Name)
	}
	evaluations := map[string]int{}
	err = r.Rows(func(one report.Row) error {
		i, ok := evaluations[one.EvaluationID]
		if !ok {
			i = len(o.evaluations)
			evaluations[one.EvaluationID] = i
			o.evaluations = append(o.evaluations, evaluation{ID: one.EvaluationID, Name: one.EvaluationName, Tags: one.Tags})
			o.addTags(one.Tags)
		}
		agent := slices.Index(o.agents, one.Agent)
		if agent < 0 { // a rollout of an agent that the plan does not have cannot be, but is shown
			agent, o.agents = len(o.agents), append(o.agents, one.Agent)
		}
		o.evaluations[i].rows = append(o.evaluations[i].rows, len(o.rows))
		o.rows = append(o.rows, row{})
		o.add(row{Row: one, evaluation: i, agent: agent}, len(o.rows)-1)
		return nil
	})
	slices.Sort(o.tags)
	o.addCauses()
	return o, err
}

// add puts a rollout at its place among the rows, which is there.
func (o *overview) add(r row, at int) {
	o.counts[r.Status]++
	o.size += 400 + len(r.Reason) + len(r.EvaluationName) + 40*len(r.Scores)
	o.rows[at] = r
}

// follow notes which rollouts have changed since an earlier overview of the run.
func (o *overview) follow(before *overview) {
	if len(before.rows) != len(o.rows) {
		return // it is another run of the same id
	}
	o.base = before.base
	for i := range o.rows {
		if o.rows[i].changed = before.rows[i].changed; o.rows[i].differs(&before.rows[i]) {
			o.rows[i].changed = o.head.Revision
		}
	}
}

// differs reports whether the status or the score of a rollout is another one than before.
func (r *row) differs(before *row) bool {
	return r.Status != before.Status || (r.Score == nil) != (before.Score == nil) || r.Score != nil && *r.Score != *before.Score
}

func (o *overview) addTags(tags []string) {
	for _, tag := range tags {
		if !slices.Contains(o.tags, tag) {
			o.tags = append(o.tags, tag)
		}
	}
}

// rowOf is the place of a rollout, -1 if the run has none with the id.
func (o *overview) rowOf(id string) int {
	return slices.IndexFunc(o.rows, func(r row) bool { return r.RolloutID == id })
}

// bad reports whether somebody has to look at a rollout: it has failed or faulted, or an evaluator
// that should have scored it did not.
func (r row) bad() bool {
	return r.Status == "failed" || r.Status == "faulted" || r.Status == "unscored" || len(r.Errors) > 0
}

// rank is the place of a rollout in the order in which one looks at them: what has failed first.
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
	return len(o.rows) > 0 && !slices.ContainsFunc(o.rows, func(r row) bool { return r.Status != "passed" || len(r.Errors) > 0 })
}

// several reports whether the run has several agents.
func (o *overview) several() bool { return len(o.agents) > 1 }

// agentSummary is what the statistics say of an agent.
func (o *overview) agentSummaries() []summary.AgentSummary { return o.head.Statistics.PerAgent() }

const (
	// maxOverviews is how many bytes the overviews that are remembered may take.
	maxOverviews = 64 << 20
	// large is how many rollouts a run has that is not read at each change.
	large = 1000
)

// overviews remembers the overviews of the runs that were looked at last. Each is made once for a
// revision, however many ask for it.
type overviews struct {
	service *service.Service

	mu   sync.Mutex
	runs map[string]*cached
	// used has the ids of the runs, those that were asked for last at the end.
	used []string
}

// cached is the newest overview of a run.
type cached struct {
	making sync.Mutex // held while one is made
	have   *overview  // guarded by overviews.mu
	// madeAt is when it was made, and took how long that took.
	madeAt time.Time
	took   time.Duration
}

func newOverviews(s *service.Service) overviews {
	return overviews{service: s, runs: map[string]*cached{}}
}

// lately is the overview of a run as it is or was a moment ago: of a large run, which may change all the
// time, one is made at most each ten times as long as that takes.
func (q *overviews) lately(ctx context.Context, run store.Run) (*overview, error) {
	c := q.entry(run.ID)
	q.mu.Lock()
	have := c.have
	current := have != nil && len(have.rows) >= large && !have.head.Final && time.Since(c.madeAt) < 10*c.took
	q.mu.Unlock()
	if current {
		return have, nil
	}
	return q.of(ctx, run)
}

// now is the overview of a run at the revision that it has now or a later one.
func (q *overviews) now(ctx context.Context, runID string) (*overview, error) {
	run, err := q.service.Head(ctx, runID)
	if err != nil {
		return nil, err
	}
	return q.of(ctx, run)
}

// of is the overview of a run at the revision that it was found with or a later one.
func (q *overviews) of(ctx context.Context, run store.Run) (*overview, error) {
	c := q.entry(run.ID)
	fresh := func() *overview {
		q.mu.Lock()
		defer q.mu.Unlock()
		if c.have != nil && c.have.head.Revision >= run.Revision {
			return c.have
		}
		return nil
	}
	if o := fresh(); o != nil {
		return o, nil
	}
	c.making.Lock()
	defer c.making.Unlock()
	if o := fresh(); o != nil {
		return o, nil
	}
	began := time.Now()
	o, err := q.read(ctx, run.ID)
	if err != nil {
		return nil, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if c.have != nil {
		o.follow(c.have)
	}
	c.have, c.madeAt, c.took = o, time.Now(), time.Since(began)
	q.shrink(run.ID)
	return o, nil
}

// read makes the overview of a run.
func (q *overviews) read(ctx context.Context, runID string) (o *overview, err error) {
	if err := q.service.Report(ctx, runID, func(r *runner.Report) (err error) {
		o, err = newOverview(r)
		return err
	}); err != nil {
		return nil, err
	}
	return o, o.addWaits(ctx, q.service)
}

// entry finds the place of a run, and notes that it was asked for.
func (q *overviews) entry(runID string) *cached {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := slices.Index(q.used, runID); i >= 0 {
		q.used = slices.Delete(q.used, i, i+1)
	}
	q.used = append(q.used, runID)
	c, ok := q.runs[runID]
	if !ok {
		c = &cached{}
		q.runs[runID] = c
	}
	return c
}

// shrink forgets what was not asked for longest, but not this run. q.mu is held.
func (q *overviews) shrink(keep string) {
	total := 0
	for _, c := range q.runs {
		if c.have != nil {
			total += c.have.size
		}
	}
	for total > maxOverviews && len(q.used) > 1 && q.used[0] != keep {
		if c := q.runs[q.used[0]]; c.have != nil {
			total -= c.have.size
		}
		delete(q.runs, q.used[0])
		q.used = q.used[1:]
	}
}
