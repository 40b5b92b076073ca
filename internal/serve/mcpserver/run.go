package mcpserver

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/access"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
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

// runs is the tool that starts runs.
type runs struct {
	service *service.Service
	results *results
	tasks   *tasks
	changed func(ctx context.Context, action, object string)
}

func (r *runs) tools() []tool {
	return []tool{{name: "run_eval_set", scope: access.Run, description: runDescription, schema: runSchema,
		annotations: changes, call: r.run, start: r.startTask}}
}

// runArguments are the arguments of run_eval_set.
type runArguments struct {
	EvalSet        json.RawMessage `json:"evalSet"`
	Agents         []string        `json:"agents"`
	Epochs         *int            `json:"epochs"`
	EvalIDs        []string        `json:"evalIds"`
	Inputs         json.RawMessage `json:"inputs"`
	IdempotencyKey string          `json:"idempotencyKey"`
	WaitSeconds    *int            `json:"waitSeconds"`
}

func readRun(arguments json.RawMessage) (a runArguments, err error) {
	if err := read(arguments, &a); err != nil {
		return a, err
	}
	if a.Epochs != nil && *a.Epochs < 1 {
		return a,
			&argumentError{"epochs: expected a whole number of at least 1; leave it out to run as often as the set says"}
	}
	return a, checkWait(a.WaitSeconds)
}

// uploaded is the capability of a job whose eval set has no name in the service.
const uploaded = "upload"

// run is the tool for a client that does not want a task: it waits for the end of the run.
func (r *runs) run(ctx context.Context, q *request, arguments json.RawMessage) (any, error) {
	a, err := readRun(arguments)
	if err != nil {
		return nil, err
	}
	started, asking, err := r.begin(ctx, q, a)
	if err != nil {
		return nil, err
	}
	defer asking.end()
	limit := silentWait
	switch {
	case a.WaitSeconds != nil:
		limit = time.Duration(*a.WaitSeconds) * time.Second
	case q.Meta().Has(mcp.MetaProgressToken):
		limit = longestWait
	}
	if err := r.results.await(ctx, q, started.RunID, limit, asking); err != nil {
		return nil, err
	}
	if len(asking.due) > 0 {
		return asking.result(started.RunID)
	}
	page, err := r.results.page(context.WithoutCancel(ctx), started.RunID, position{}, defaultPage)
	page.Warnings = started.Warnings
	return page, err
}

// begin starts the run, or delivers the answers of a client that repeats its call.
func (r *runs) begin(ctx context.Context, q *request, a runArguments) (started service.Started, _ *asking, err error) {
	asking := newAsking(r.tasks.questions, q, false)
	before, answers, err := readRound(q)
	switch {
	case err != nil:
		return started, nil, err
	case before.RunID == "":
		started, err = r.start(ctx, q, a)
		return started, asking, err
	}
	asking.asked = before.Asked
	asking.able = asking.able && len(before.Asked) < mcp.MaxRounds-1 // clients answer so often, and no more
	return service.Started{RunID: before.RunID}, asking, r.tasks.Answer(ctx, q.Request, before.RunID, answers)
}

// startTask is the tool for a client that wants a task.
func (r *runs) startTask(ctx context.Context, q *request, arguments json.RawMessage) (taskID string, err error) {
	a, err := readRun(arguments)
	if err != nil {
		return "", err
	}
	started, err := r.start(ctx, q, a)
	return started.RunID, err
}

// start starts the run that a call asks for, as a job of the caller's. The run is durable when
// start returns.
func (r *runs) start(ctx context.Context, q *request, a runArguments) (started service.Started, err error) {
	start := service.StartRequest{Agents: a.Agents, EvalIDs: a.EvalIDs, By: q.caller.ID, IdempotencyKey: a.IdempotencyKey}
	if a.Epochs != nil {
		start.Epochs = *a.Epochs
	}
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
		return started, &argumentError{"evalSet: expected the name of an eval set, or an eval set itself"}
	}
	if start.IdempotencyKey == "" { // then the client's gateway may have one
		start.IdempotencyKey = q.Meta().Text(mcp.MetaIdempotencyKey)
	}
	start.Job = job
	if start.Left, err = timeLeft(q); err != nil {
		return started, err
	}
	if started, err = r.service.Start(ctx, start); err != nil {
		return started, err
	}
	if started.New {
		r.changed(ctx, "run", started.RunID)
	}
	return started, nil
}

// jobPayload is the payload that the run's job shows.
func jobPayload(a runArguments) json.RawMessage {
	o := jsonobj.Object{}
	add := func(key string, present bool, value any) {
		if data, err := json.Marshal(value); present && err == nil {
			o = append(o, jsonobj.Member{Key: key, Value: data})
		}
	}
	add("agents", len(a.Agents) > 0, a.Agents)
	add("epochs", a.Epochs != nil, a.Epochs)
	add("evalIds", len(a.EvalIDs) > 0, a.EvalIDs)
	add("inputs", !jsonobj.IsNull(a.Inputs), a.Inputs)
	return o.JSON()
}

// headerTimeLeft is the header with the seconds that the caller itself has left.
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
