package web

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/report"
	"github.com/evalrun/evalrun/internal/service"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/runner"
)

// newOverview makes the overview of a report.
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
		if agent < 0 { // the plan has every agent; a rollout of another is shown all the same
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

// overviews caches the overviews of the runs that were looked at last. It makes each once for a
// revision, however many readers ask for it.
type overviews struct {
	service *service.Service

	mu   sync.Mutex
	runs map[string]*cached
	// used has the ids of the runs, the most recently used at the end.
	used []string
}

const (
	// maxOverviews is the most bytes that the cached overviews may take.
	maxOverviews = 64 << 20
	// large is the number of rollouts from which on a run is not read at each change.
	large = 1000
)

// cached is the newest overview of a run.
type cached struct {
	making sync.Mutex // held while one is made
	have   *overview  // guarded by overviews.mu
	// madeAt is the time at which it was made, and took how long that took.
	madeAt time.Time
	took   time.Duration
}

func newOverviews(s *service.Service) overviews {
	return overviews{service: s, runs: map[string]*cached{}}
}

// lately returns the overview of a run as it is or was a moment ago. Making one of a large run,
// which may change all the time, takes at most a tenth of the time.
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

// now returns the overview of a run at its current revision or a later one.
func (q *overviews) now(ctx context.Context, runID string) (*overview, error) {
	run, err := q.service.Head(ctx, runID)
	if err != nil {
		return nil, err
	}
	return q.of(ctx, run)
}

// of returns the overview of a run at the revision of run or a later one.
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

// entry finds the entry of a run, and notes that it was used.
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

// shrink drops the least recently used entries, but not that of keep. q.mu is held.
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
