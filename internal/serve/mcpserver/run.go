package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/mcp/taskwire"
	"github.com/evalrun/evalrun/internal/serve/access"
	"github.com/evalrun/evalrun/internal/service"
	"github.com/evalrun/evalrun/internal/store"
)

const runDescription = `Run an eval set against its agents, or against those that are named, and wait for the results. ` +
	`The run goes on on its own, whatever becomes of the call: if it takes too long the result says how to come back. ` +
	`Called as an MCP task it returns at once. With an idempotency key a repeated call finds the run of the first one.`

const runSchema = `{"type":"object","additionalProperties":false,"required":["evalSet"],"properties":{` +
	`"evalSet":{"description":"the name of an eval set of the service, or an eval set itself, which may name agents of the service and brings no commands","type":["string","object"]},` +
	`"agents":{"description":"run these agents in place of the set's own","type":"array","items":{"type":"string"}},` +
	`"epochs":{"description":"how often each evaluation runs; as the set says if left out","type":"integer","minimum":1},` +
	`"evalIds":{"description":"run these evaluations only","type":"array","items":{"type":"string"}},` +
	`"inputs":{"description":"members that replace those of the same names in the inputs of every evaluation","type":"object"},` +
	`"idempotencyKey":{"description":"calls with the same key are one run","type":"string","minLength":1,"maxLength":255},` +
	`"waitSeconds":{"description":"how long to wait for the end; if left out, until the end for clients that are told of progress, 50 seconds for others","type":"integer","minimum":0}}}`

// runArguments are those of run_eval_set.
type runArguments struct {
	EvalSet        json.RawMessage `json:"evalSet"`
	Agents         []string        `json:"agents"`
	Epochs         int             `json:"epochs"`
	EvalIDs        []string        `json:"evalIds"`
	Inputs         json.RawMessage `json:"inputs"`
	IdempotencyKey string          `json:"idempotencyKey"`
	WaitSeconds    *int            `json:"waitSeconds"`
}

// uploaded is the capability of a job that runs an eval set which has no name in the service.
const uploaded = "upload"

// owner is the submitter of the jobs that are a caller's tasks.
func owner(caller access.Identity) string { return "mcp:" + caller.ID }

// start starts the run that a call asks for, as a job of the caller's. It is durable when this
// returns.
func (s *Server) start(ctx context.Context, q *request, arguments json.RawMessage) (runID string, a runArguments, err error) {
	if err := read(arguments, &a); err != nil {
		return "", a, err
	}
	if err := checkWait(a.WaitSeconds); err != nil {
		return "", a, err
	}
	start := service.StartRequest{Agents: a.Agents, Epochs: a.Epochs, EvalIDs: a.EvalIDs, By: q.caller.ID, IdempotencyKey: a.IdempotencyKey}
	if !jsonobj.IsNull(a.Inputs) {
		start.Inputs = a.Inputs
	}
	job := &store.NewJob{Capability: uploaded, SubmittedBy: owner(q.caller), Payload: jobPayload(a)}
	if name, isName := jsonobj.Unquote(a.EvalSet); isName {
		start.EvalSet, job.Capability = name, name
	} else if len(a.EvalSet) > 0 && a.EvalSet[0] == '{' {
		start.Upload = a.EvalSet
	}
	if (start.EvalSet == "") == (start.Upload == nil) {
		return "", a, &argumentError{"evalSet: expected the name of an eval set, or an eval set itself"}
	}
	if start.IdempotencyKey == "" { // then the client's gateway may have one
		start.IdempotencyKey = q.Meta().Text(mcp.MetaIdempotencyKey)
	}
	start.Job = job
	if start.Left, err = timeLeft(q); err != nil {
		return "", a, err
	}
	started, err := s.o.Service.Start(ctx, start)
	if err != nil {
		return "", a, err
	}
	if started.New && s.o.Changed != nil {
		s.o.Changed(ctx, "run", started.RunID)
	}
	return started.RunID, a, nil
}

// jobPayload is what the run's job is shown to have been asked for.
func jobPayload(a runArguments) json.RawMessage {
	o := jsonobj.Object{}
	add := func(key string, present bool, value any) {
		if data, err := json.Marshal(value); present && err == nil {
			o = append(o, jsonobj.Member{Key: key, Value: data})
		}
	}
	add("agents", len(a.Agents) > 0, a.Agents)
	add("epochs", a.Epochs > 0, a.Epochs)
	add("evalIds", len(a.EvalIDs) > 0, a.EvalIDs)
	add("inputs", !jsonobj.IsNull(a.Inputs), a.Inputs)
	return o.JSON()
}

// headerTimeLeft says how many seconds the caller itself has left.
const headerTimeLeft = "X-Mesh-Timeout"

// maxLeft bounds it: ten years.
const maxLeft = 10 * 365 * 24 * 3600

func timeLeft(q *request) (*time.Duration, error) {
	text := strings.TrimSpace(q.Header.Get(headerTimeLeft))
	if text == "" {
		return nil, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n > maxLeft {
		return nil, &argumentError{"the header " + headerTimeLeft + " must be a whole number of seconds"}
	}
	left := time.Duration(max(n, 0)) * time.Second
	return &left, nil
}

// startTask starts a run as a task.
func (s *Server) startTask(ctx context.Context, q *request, arguments json.RawMessage) (json.RawMessage, error) {
	runID, _, err := s.start(ctx, q, arguments)
	if err != nil {
		return s.failed(q, s.tools[0], err)
	}
	t, err := s.task(ctx, q, runID)
	if err != nil {
		return nil, err
	}
	if q.session != nil {
		q.session.watch(runID)
	}
	return t.Created(q.Era, nil, jsonobj.Object{}), nil
}

// wantsTask reports whether the client wants its call as a task. A legacy one says so; a modern one
// that knows tasks is given one.
func (q *request) wantsTask(params jsonobj.Object) (bool, error) {
	if q.Era == mcp.Modern {
		return taskwire.Declares(q.capabilities()), nil
	}
	wish := params.Get("task")
	if jsonobj.IsNull(wish) {
		return false, nil
	}
	if _, err := jsonobj.ParseObject(wish); err != nil {
		return false, mcp.Errorf(mcp.CodeInvalidParams, "params.task: %v", err)
	}
	return true, nil
}

const (
	// silentWait is how long a client is kept waiting that is told nothing meanwhile: many give up
	// after a minute.
	silentWait = 50 * time.Second
	// progressInterval is how often a client that waits is told that its call goes on.
	progressInterval = 5 * time.Second
	longestWait      = 24 * time.Hour
)

// checkWait checks the argument waitSeconds.
func checkWait(seconds *int) error {
	if most := int(longestWait / time.Second); seconds != nil && (*seconds < 0 || *seconds > most) {
		return &argumentError{fmt.Sprintf("waitSeconds: expected 0 to %d, got %d", most, *seconds)}
	}
	return nil
}

// runEvalSet is the tool for a client that does not want a task: it waits for the end of the run.
func (s *Server) runEvalSet(ctx context.Context, q *request, arguments json.RawMessage) (any, error) {
	runID, a, err := s.start(ctx, q, arguments)
	if err != nil {
		return nil, err
	}
	limit := silentWait
	switch {
	case a.WaitSeconds != nil:
		limit = time.Duration(*a.WaitSeconds) * time.Second
	case q.Meta().Has(mcp.MetaProgressToken):
		limit = longestWait
	}
	if err := s.await(ctx, q, runID, limit); err != nil {
		return nil, err
	}
	return s.page(context.WithoutCancel(ctx), runID, position{}, defaultPage)
}

// await waits until a run is final, the time is over or the server is closed, and tells the client
// meanwhile how far it is.
func (s *Server) await(ctx context.Context, q *request, runID string, limit time.Duration) error {
	late := time.NewTimer(limit)
	defer late.Stop()
	token := q.Meta().Get(mcp.MetaProgressToken)
	var tick <-chan time.Time
	if token != nil {
		ticker := time.NewTicker(progressInterval)
		defer ticker.Stop()
		tick = ticker.C
	}
	told := ""
	for n := 0; ; {
		changed := s.st.Changed(runID)
		run, err := s.o.Service.Run(ctx, runID)
		if err != nil || run.Final() {
			return err
		}
		if now := standing(run.Counts); token != nil && now != told {
			_ = q.Notify(mcp.NoteProgress, progress(token, n, run)) // a client that has gone ends ctx
			told, n = now, n+1
		}
		select {
		case <-changed:
		case <-tick:
			told = ""
		case <-late.C:
			return nil
		case <-ctx.Done():
			if cause := context.Cause(ctx); !errors.Is(cause, mcp.ErrShutdown) {
				return cause
			}
			return nil
		}
	}
}

// progress tells how far a run is, and how to come back to it. The number of rollouts that have
// ended may stay the same, and progress must grow.
func progress(token json.RawMessage, n int, run service.Run) json.RawMessage {
	c := run.Counts
	ended := c.Completed + c.Faulted + c.Cancelled
	value := strconv.AppendFloat(nil, float64(ended)+1-1/float64(n+2), 'f', -1, 64)
	message := fmt.Sprintf("run %s: %s; it goes on if this call ends, and get_results has its results", run.ID, standing(c))
	return jsonobj.Object{
		{Key: "progressToken", Value: token}, {Key: "progress", Value: value},
		{Key: "total", Value: strconv.AppendInt(nil, int64(c.Total+1), 10)}, {Key: "message", Value: jsonobj.Quote(message)},
	}.JSON()
}

// standing says how far a run is.
func standing(c store.Counts) string {
	text := fmt.Sprintf("%d of %d rollouts have ended", c.Completed+c.Faulted+c.Cancelled, c.Total)
	if c.Suspended > 0 {
		text += fmt.Sprintf(", %d wait", c.Suspended)
	}
	return text
}
