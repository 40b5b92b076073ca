package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/evalrun/evalrun/internal/access"
	"github.com/evalrun/evalrun/internal/service"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/runner"
	"github.com/evalrun/evalrun/schemas"
)

const runsDescription = `List the runs, the newest first, with their status and how many of their rollouts are in which state.`

const runsSchema = `{"type":"object","additionalProperties":false,"properties":{` +
	`"final":{"description":"list only runs that are final, or only those that are not","type":"boolean"},` +
	`"cursor":{"description":"nextCursor of the page before","type":"string"},` +
	`"limit":{"description":"20 if left out","type":"integer","minimum":1,"maximum":200}}}`

// lists are the tools that list runs and triggers.
type lists struct {
	service *service.Service
	st      store.Reader
}

func (l *lists) tools() []tool {
	return []tool{
		{name: "list_runs", scope: access.Read, description: runsDescription, schema: runsSchema, annotations: reads,
			call: l.runs},
		{name: "list_triggers", scope: access.Read, description: triggersDescription, schema: triggersSchema,
			annotations: reads, call: l.triggers},
	}
}

// listedRun is a run in a list.
type listedRun struct {
	RunID             string         `json:"runId"`
	EvaluationSetName string         `json:"evaluationSetName"`
	Status            schemas.Status `json:"status"`
	Final             bool           `json:"final"`
	CreatedAt         time.Time      `json:"createdAt"`
	Total             int            `json:"total"`
	Suspended         int            `json:"suspended"`
	Completed         int            `json:"completed"`
	Faulted           int            `json:"faulted"`
	Cancelled         int            `json:"cancelled"`
}

type runList struct {
	Runs       []listedRun `json:"runs"`
	NextCursor string      `json:"nextCursor,omitempty"`
}

// runs is the tool. The cursor is the id of the last run of the page before.
func (l *lists) runs(ctx context.Context, _ *request, arguments json.RawMessage) (any, error) {
	var a struct {
		Final  *bool  `json:"final"`
		Cursor string `json:"cursor"`
		Limit  int    `json:"limit"`
	}
	if err := read(arguments, &a); err != nil {
		return nil, err
	}
	limit, err := pageLimit(a.Limit)
	if err != nil {
		return nil, err
	}
	query := store.RunQuery{Final: a.Final, Limit: limit + 1}
	if a.Cursor != "" {
		last, err := l.st.Run(ctx, a.Cursor)
		if err != nil {
			return nil, unknownCursor(err)
		}
		query.Before = store.RunPlace{CreatedAt: last.CreatedAt, ID: last.ID}
	}
	found, err := l.service.ListRuns(ctx, query)
	if err != nil {
		return nil, err
	}
	out := runList{Runs: []listedRun{}}
	if len(found) > limit {
		found = found[:limit]
		out.NextCursor = found[limit-1].ID
	}
	for _, r := range found {
		c := r.Counts
		out.Runs = append(out.Runs, listedRun{r.ID, r.EvaluationSetName, r.Status, r.Final(), r.CreatedAt, c.Total,
			c.Suspended + c.Scoring, c.Completed, c.Faulted, c.Cancelled})
	}
	return out, nil
}

func unknownCursor(err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return &argumentError{"cursor: expected the nextCursor of a page; what it names may have been removed"}
	}
	return err
}

const triggersDescription = `List what suspended rollouts wait for: jobs, timers, answers of people. ` +
	`Those with "answer":"deliver" go on when deliver hands in what they wait for; for the others evalrun asks by itself.`

const triggersSchema = `{"type":"object","additionalProperties":false,"properties":{` +
	`"runId":{"description":"list only those of this run","type":"string"},` +
	`"cursor":{"description":"nextCursor of the page before","type":"string"},` +
	`"limit":{"description":"20 if left out","type":"integer","minimum":1,"maximum":200}}}`

// listedTrigger is a trigger in a list.
type listedTrigger struct {
	TriggerID      string     `json:"triggerId"`
	RunID          string     `json:"runId"`
	RolloutID      string     `json:"rolloutId"`
	EvaluationName string     `json:"evaluationName"`
	Type           string     `json:"type"`
	Source         string     `json:"source"`
	ItemKey        string     `json:"itemKey"`
	CreatedAt      time.Time  `json:"createdAt"`
	Deadline       *time.Time `json:"deadline"`
	LastError      string     `json:"lastError,omitempty"`
	// Payload is the request that the trigger waits on.
	Payload json.RawMessage `json:"payload"`
	// Answer is how the wait ends: by deliver, or wait.
	Answer string `json:"answer"`
}

type triggerList struct {
	Triggers   []listedTrigger `json:"triggers"`
	NextCursor string          `json:"nextCursor,omitempty"`
}

// triggers is the tool. The cursor is the place of the last trigger of the page before.
func (l *lists) triggers(ctx context.Context, _ *request, arguments json.RawMessage) (any, error) {
	var a struct {
		RunID  string `json:"runId"`
		Cursor string `json:"cursor"`
		Limit  int    `json:"limit"`
	}
	if err := read(arguments, &a); err != nil {
		return nil, err
	}
	limit, err := pageLimit(a.Limit)
	if err != nil {
		return nil, err
	}
	query := store.TriggerQuery{RunID: a.RunID, Limit: limit}
	if a.Cursor != "" {
		if query.After, err = strconv.ParseInt(a.Cursor, 10, 64); err != nil || query.After < 0 {
			return nil, unknownCursor(store.ErrNotFound)
		}
	}
	found, last, err := l.service.ListTriggers(ctx, query)
	if err != nil {
		return nil, unknownRun(a.RunID, err)
	}
	out := triggerList{Triggers: []listedTrigger{}}
	for _, t := range found {
		out.Triggers = append(out.Triggers, newListedTrigger(t))
	}
	if len(found) == limit { // there may be more
		out.NextCursor = strconv.FormatInt(last, 10)
	}
	return out, nil
}

func newListedTrigger(t runner.Trigger) listedTrigger {
	out := listedTrigger{t.TriggerID, t.RunID, t.RolloutID, t.EvaluationName, t.Type, t.Source, t.ItemKey, t.CreatedAt,
		t.Deadline, t.LastError, t.Payload, "deliver"}
	if t.Answer == runner.AnswerPoll {
		out.Answer = "wait"
	}
	return out
}

// unknownRun returns an error for the caller if there is no such run.
func unknownRun(id string, err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return &argumentError{"there is no run " + id + "; list_runs lists them"}
	}
	return err
}
