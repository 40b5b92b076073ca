package web

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/report"
	"github.com/evalrun/evalrun/internal/service"
	"github.com/evalrun/evalrun/runner"
	"github.com/evalrun/evalrun/schemas"
)

// statuses are those of rollouts, in the order in which they are counted.
var statuses = []string{"passed", "failed", "faulted", "suspended", "scoring", "running", "evaluating", "pending", "unscored", "cancelled"}

// overview is a run at one revision, as lists need it: everything but what its agents were given and
// have made. It never changes.
type overview struct {
	head    schemas.Head
	pass    float64
	verdict runner.Verdict
	// reason says why the verdict is what it is, if that needs a reason.
	reason      string
	agents      []string
	evaluators  []evaluator
	evaluations []evaluation
	rows        []row
	tags        []string
	// waits is what the run waits for, and ends when it can be over.
	waits []waitGroup
	ends  ends
	// counts has the rollouts by status; size is about how many bytes the overview takes.
	counts map[string]int
	size   int
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
}

// newOverview reads a report.
func newOverview(r *runner.Report) (*overview, error) {
	o := &overview{head: r.Head(), pass: r.Pass(), counts: map[string]int{}}
	var err error
	if o.verdict, o.reason, err = r.Judge(runner.Accept{}); err != nil {
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
		o.add(row{one, i, agent}, len(o.rows)-1)
		return nil
	})
	slices.Sort(o.tags)
	return o, err
}

// add puts a rollout at its place among the rows, which is there.
func (o *overview) add(r row, at int) {
	o.counts[r.Status]++
	o.size += 400 + len(r.Reason) + len(r.EvaluationName) + 40*len(r.Scores)
	o.rows[at] = r
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
	return r.Status == "failed" || r.Status == "faulted" || r.Status == "unscored"
}

// several reports whether the run has several agents.
func (o *overview) several() bool { return len(o.agents) > 1 }

// agentSummary is what the statistics say of an agent.
func (o *overview) agentSummaries() []eval.AgentSummary { return o.head.Statistics.PerAgent() }

// maxOverviews is how many bytes the overviews that are kept may take.
const maxOverviews = 64 << 20

// overviews keeps the overviews of the runs that were looked at last. Each is made once for a
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
func (q *overviews) lately(ctx context.Context, runID string) (*overview, error) {
	q.mu.Lock()
	c := q.runs[runID]
	if c != nil && c.have != nil && len(c.have.rows) >= keepFrom && !c.have.head.Final && time.Since(c.madeAt) < 10*c.took {
		defer q.mu.Unlock()
		return c.have, nil
	}
	q.mu.Unlock()
	return q.of(ctx, runID)
}

// of is the overview of a run at the revision that it has now or a later one.
func (q *overviews) of(ctx context.Context, runID string) (*overview, error) {
	run, err := q.service.Run(ctx, runID)
	if err != nil {
		return nil, err
	}
	c := q.entry(runID)
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
	o, err := q.read(ctx, run)
	if err != nil {
		return nil, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	c.have, c.madeAt, c.took = o, time.Now(), time.Since(began)
	q.shrink(runID)
	return o, nil
}

// read makes the overview of a run: of what was kept if that is of its revision, else of everything.
func (q *overviews) read(ctx context.Context, run service.Run) (o *overview, err error) {
	st := q.service.Store()
	if run.Counts.Total >= keepFrom {
		red, err := q.service.Redactor(ctx, run.ID)
		if err != nil {
			return nil, err
		}
		if o, err := readKept(st.Dir(), run.ID, run.Revision, red); err == nil {
			return o, nil
		}
	}
	if err := q.service.Report(ctx, run.ID, func(r *runner.Report) (err error) {
		o, err = newOverview(r)
		return err
	}); err != nil {
		return nil, err
	}
	if err := o.addWaits(ctx, q.service); err != nil {
		return nil, err
	}
	if len(o.rows) >= keepFrom && o.head.Status != schemas.Running && st.InPlace() == nil {
		_ = keep(st.Dir(), o) // without it the next server makes it again
	}
	return o, nil
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
