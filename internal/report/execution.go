package report

import (
	"context"
	"encoding/json"

	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/schemas"
)

// Execution is the progress of a run, folded from its events. Given the events of several runs, it
// counts them together. It is not safe for concurrent use.
type Execution struct {
	// Total is the number of planned rollouts.
	Total                                                      int
	Running, Suspended, Scoring, Completed, Faulted, Cancelled int
	// Passed, Failed and Unscored split Completed, as far as it is known.
	Passed, Failed, Unscored int
	// runID is the run whose counts it began with. These count the events up to seq.
	runID string
	seq   int64
	// pass has the least score that passes, by run, where it is not 1.
	pass map[string]float64
	// open has the rollouts that have begun and not ended.
	open map[string]*openRollout
}

type openRollout struct {
	name  string
	state schemas.State
}

// NewExecution starts with the counts of a run as they were at its event seq. Add the events that
// come after it. Without a run, the events of all runs count.
// [Execution.Load] reads the names of the rollouts that have begun already.
func NewExecution(runID string, seq int64, c store.Counts) *Execution {
	return &Execution{
		runID: runID, seq: seq, pass: map[string]float64{}, open: map[string]*openRollout{},
		Total: c.Total, Running: c.Running + c.Evaluating, Suspended: c.Suspended, Scoring: c.Scoring,
		Completed: c.Completed, Faulted: c.Faulted, Cancelled: c.Cancelled,
	}
}

// EventLog reads the events of a run: at most limit of those that come after the number after.
type EventLog interface {
	Events(ctx context.Context, runID string, after int64, limit int) ([]schemas.Event, error)
}

// EventOf converts an event of the store to the form that other programs read.
func EventOf(e store.Event) schemas.Event {
	return schemas.Event{Seq: e.Seq, Time: e.Time, Type: schemas.EventType(e.Type),
		RunID: e.RunID, RolloutID: e.RolloutID, Data: e.Data}
}

// eventBatch is how many events are read at once.
const eventBatch = 2000

// SetPass says which score passes in a run.
func (x *Execution) SetPass(runID string, pass float64) { x.pass[runID] = pass }

// Load reads the events that the run has had already.
func (x *Execution) Load(ctx context.Context, log EventLog) error {
	for seq := int64(0); seq < x.seq; {
		events, err := log.Events(ctx, x.runID, seq, eventBatch)
		if err != nil || len(events) == 0 {
			return err
		}
		for _, e := range events {
			if e.Seq <= x.seq {
				if data, _ := x.add(e); e.Type == schemas.EventRolloutFinished {
					x.judge(e.RunID, data) // the counts include the rollout, but not how it was scored
				}
			}
		}
		seq = events[len(events)-1].Seq
	}
	return nil
}

// Finished counts the rollouts that cannot change any more.
func (x *Execution) Finished() int { return x.Completed + x.Faulted + x.Cancelled }

// eventData has the fields of all events; schemas/event.schema.json says which event has which.
type eventData struct {
	Total          int                      `json:"total"`
	EvaluationName string                   `json:"evaluationName"`
	Segment        int                      `json:"segment"`
	Attempt        int                      `json:"attempt"`
	AfterMs        int64                    `json:"afterMs"`
	Triggers       []schemas.SuspendTrigger `json:"triggers"`
	Status         string                   `json:"status"`
	By             string                   `json:"by"`
	State          schemas.State            `json:"state"`
	Score          *float64                 `json:"score"`
	Fault          *schemas.Fault           `json:"fault"`
}

// Add adds one event. An event that the initial counts include is not counted again.
func (x *Execution) Add(e schemas.Event) { x.add(e) }

// add adds one event and returns what it says and the name of its rollout.
func (x *Execution) add(e schemas.Event) (data eventData, name string) {
	_ = json.Unmarshal(e.Data, &data) // the store wrote it; fields that cannot be read are not shown
	counted := e.RunID != x.runID || e.Seq > x.seq
	switch e.Type {
	case schemas.EventRunCreated:
		if counted {
			x.Total += data.Total
		}
	case schemas.EventRolloutStarted:
		x.rollout(e.RolloutID, schemas.StatePending).name = data.EvaluationName
		name = x.become(e.RolloutID, schemas.StatePending, schemas.StateRunning, counted)
	case schemas.EventRolloutResumed:
		name = x.become(e.RolloutID, schemas.StateSuspended, schemas.StateRunning, counted)
	case schemas.EventRolloutRetried:
		name = x.become(e.RolloutID, schemas.StateRunning, schemas.StateRunning, counted)
	case schemas.EventRolloutSuspended:
		name = x.become(e.RolloutID, schemas.StateRunning, schemas.StateSuspended, counted)
	case schemas.EventRolloutScoring:
		name = x.become(e.RolloutID, schemas.StateRunning, schemas.StateScoring, counted)
	case schemas.EventRolloutFinished:
		before := schemas.StateSuspended
		switch {
		case data.State == schemas.StateCompleted:
			before = schemas.StateRunning
		case data.EvaluationName != "": // the rollout was never started
			x.rollout(e.RolloutID, schemas.StatePending).name = data.EvaluationName
		}
		name = x.become(e.RolloutID, before, data.State, counted)
		if counted {
			x.judge(e.RunID, data)
		}
		delete(x.open, e.RolloutID)
	case schemas.EventTriggerDelivered, schemas.EventQuestionAsked:
		name = x.rollout(e.RolloutID, schemas.StateSuspended).name
	}
	return data, name
}

// judge counts how a rollout has ended.
func (x *Execution) judge(runID string, data eventData) {
	switch x.verdict(runID, data) {
	case passed:
		x.Passed++
	case failed:
		x.Failed++
	case unscored:
		x.Unscored++
	}
}

// verdict says how a rollout has ended, by its last event.
func (x *Execution) verdict(runID string, data eventData) verdict {
	pass, ok := x.pass[runID]
	if !ok {
		pass = 1
	}
	ended := Report{Pass: pass}
	return ended.verdict(&schemas.Rollout{Status: data.State, Score: data.Score})
}

// rollout finds a rollout. An unknown one is assumed to be in the state from which the event
// usually comes.
func (x *Execution) rollout(id string, usually schemas.State) *openRollout {
	o := x.open[id]
	if o == nil {
		o = &openRollout{name: "rollout " + id, state: usually}
		x.open[id] = o
	}
	return o
}

// become changes the state of a rollout and returns its name.
func (x *Execution) become(id string, usually, state schemas.State, counted bool) string {
	o := x.rollout(id, usually)
	if counted {
		if n := x.counter(o.state); n != nil && *n > 0 {
			*n--
		}
		if n := x.counter(state); n != nil {
			*n++
		}
	}
	o.state = state
	return o.name
}

func (x *Execution) counter(s schemas.State) *int {
	switch s {
	case schemas.StateRunning:
		return &x.Running
	case schemas.StateSuspended:
		return &x.Suspended
	case schemas.StateScoring:
		return &x.Scoring
	case schemas.StateCompleted:
		return &x.Completed
	case schemas.StateFaulted:
		return &x.Faulted
	case schemas.StateCancelled:
		return &x.Cancelled
	}
	return nil
}
