package mcpserver

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/evalrun/evalrun/internal/report"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/runner"
	"github.com/evalrun/evalrun/schemas"
)

const runsDescription = `List the runs, the newest first, with their status and how many of their rollouts are in which state.`

const runsSchema = `{"type":"object","additionalProperties":false,"properties":{` +
	`"status":{"description":"list only runs with this status","enum":["running","suspended","faulted","cancelled","successful"]},` +
	`"cursor":{"description":"nextCursor of the page before","type":"string"},` +
	`"limit":{"description":"20 if left out","type":"integer","minimum":1,"maximum":200}}}`

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

// listRuns is the tool. The cursor is the id of the last run of the page before.
func (s *Server) listRuns(ctx context.Context, _ *request, arguments json.RawMessage) (any, error) {
	var a struct {
		Status schemas.Status `json:"status"`
		Cursor string         `json:"cursor"`
		Limit  int            `json:"limit"`
	}
	if err := read(arguments, &a); err != nil {
		return nil, err
	}
	if known := []schemas.Status{"", schemas.Running, schemas.Suspended, schemas.Faulted, schemas.Cancelled, schemas.Successful}; !slices.Contains(known, a.Status) {
		return nil, &argumentError{"status: expected running, suspended, faulted, cancelled or successful"}
	}
	limit, err := pageLimit(a.Limit)
	if err != nil {
		return nil, err
	}
	all, err := s.st.Runs(ctx)
	if err != nil {
		return nil, err
	}
	if a.Cursor != "" {
		i := slices.IndexFunc(all, func(r store.Run) bool { return r.ID == a.Cursor })
		if i < 0 {
			return nil, &argumentError{"cursor: expected the nextCursor of a page; its run may have been removed"}
		}
		all = all[i+1:]
	}
	out := runList{Runs: []listedRun{}}
	for _, r := range all {
		status := report.StatusOf(r.Counts)
		if a.Status != "" && status != a.Status {
			continue
		}
		if len(out.Runs) == limit {
			out.NextCursor = out.Runs[limit-1].RunID
			break
		}
		c := r.Counts
		out.Runs = append(out.Runs, listedRun{r.ID, r.EvaluationSetName, status, r.Final(), r.CreatedAt, c.Total, c.Suspended, c.Completed, c.Faulted, c.Cancelled})
	}
	return out, nil
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
	// Payload is what was asked for.
	Payload json.RawMessage `json:"payload"`
	// Answer is how the wait ends: by deliver, or wait.
	Answer string `json:"answer"`
}

type triggerList struct {
	Triggers   []listedTrigger `json:"triggers"`
	NextCursor string          `json:"nextCursor,omitempty"`
}

// listTriggers is the tool. The cursor is the id of the last trigger of the page before.
func (s *Server) listTriggers(ctx context.Context, _ *request, arguments json.RawMessage) (any, error) {
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
	out := triggerList{Triggers: []listedTrigger{}}
	var last listedTrigger
	if a.Cursor != "" {
		t, err := s.st.Trigger(ctx, a.Cursor)
		if err != nil {
			return nil, &argumentError{"cursor: expected the nextCursor of a page"}
		}
		last = listedTrigger{TriggerID: t.ID, CreatedAt: t.CreatedAt}
	}
	if err := s.o.Service.Triggers(ctx, a.RunID, false, func(t runner.Trigger) error {
		if one := newListedTrigger(t); t.Open && one.compare(last) > 0 {
			out.Triggers = append(out.Triggers, one)
		}
		return nil
	}); err != nil {
		return nil, unknownRun(a.RunID, err)
	}
	slices.SortFunc(out.Triggers, listedTrigger.compare)
	if len(out.Triggers) > limit {
		out.Triggers = out.Triggers[:limit]
		out.NextCursor = out.Triggers[limit-1].TriggerID
	}
	return out, nil
}

// compare puts the oldest first.
func (t listedTrigger) compare(other listedTrigger) int {
	return cmp.Or(t.CreatedAt.Compare(other.CreatedAt), cmp.Compare(t.TriggerID, other.TriggerID))
}

func newListedTrigger(t runner.Trigger) listedTrigger {
	out := listedTrigger{t.TriggerID, t.RunID, t.RolloutID, t.EvaluationName, t.Type, t.Source, t.ItemKey, t.CreatedAt, t.Deadline, t.LastError, t.Payload, "deliver"}
	if t.Answer == runner.AnswerPoll {
		out.Answer = "wait"
	}
	return out
}

// unknownRun says in the words of a caller that there is no such run.
func unknownRun(id string, err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return &argumentError{"there is no run " + id + "; list_runs lists them"}
	}
	return err
}
