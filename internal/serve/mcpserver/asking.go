package mcpserver

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/store"
)

// asking asks a client the questions of a run, each one once. It asks a legacy client in the middle
// of its request, one question at a time, and withdraws a question that somebody else has answered.
// A modern client gets all open questions as the result of its request, which it repeats.
type asking struct {
	questions *questions
	q         *request
	// asTask says that the run is a task of the client's.
	asTask bool
	// able says that the client can be asked, and may answer.
	able bool
	// asked are the triggers for which the client was asked.
	asked []string
	// current is the trigger for which it is being asked, empty if there is none. cancel withdraws the
	// question; answered receives the outcome of its answer.
	current  string
	cancel   context.CancelFunc
	answered chan error
	// due are the questions for a modern client.
	due []question
}

func newAsking(questions *questions, q *request, asTask bool) *asking {
	return &asking{questions: questions, q: q, asTask: asTask,
		able: q.mayAnswer() && mcp.Supports(q.capabilities(), mcp.AskElicitation), answered: make(chan error, 1)}
}

// update withdraws a question that somebody else has answered, and asks the next one.
func (a *asking) update(ctx context.Context, j store.Job) error {
	if !a.able || a.current == "" && j.Status != store.JobInputRequired {
		return nil
	}
	open, err := a.questions.open(ctx, j.ID)
	if err != nil {
		return internal(a.questions.log, "reading the questions", err)
	}
	if a.current != "" {
		if slices.ContainsFunc(open, func(one question) bool { return one.triggerID == a.current }) {
			return nil
		}
		a.end()
	}
	for _, one := range open {
		switch {
		case slices.Contains(a.asked, one.triggerID):
		case a.q.Era == mcp.Modern:
			a.due = append(a.due, one)
		default:
			a.ask(ctx, j.ID, one)
			return nil
		}
	}
	return nil
}

// ask asks a question, on a goroutine that end waits for.
func (a *asking) ask(ctx context.Context, taskID string, one question) {
	a.current, a.asked = one.triggerID, append(a.asked, one.triggerID)
	asking, cancel := context.WithCancel(ctx)
	a.cancel = cancel
	params := one.params()
	if a.asTask {
		named := jsonobj.Object{{Key: "taskId", Value: jsonobj.Quote(taskID)}}
		params = mcp.WithMeta(params, mcp.MetaRelatedTask, named.JSON())
	}
	go func() {
		response, err := a.q.Ask(asking, mcp.AskElicitation, params)
		if err != nil { // it cannot or will not answer; the question stays open
			a.answered <- nil
			return
		}
		a.answered <- a.questions.answer(ctx, a.q, one, response)
	}()
}

// next records that the client has answered.
func (a *asking) next() {
	a.cancel()
	a.current = ""
}

// round is the state that a modern client returns when it repeats a call with its answers.
type round struct {
	RunID string `json:"runId"`
	// Asked are the triggers for which the client was asked. A question that it has declined to answer
	// is still open.
	Asked []string `json:"asked"`
}

// readRound reads the state that a client returns, and its answers. It is empty if the call is not
// a repetition.
func readRound(q *request) (r round, answers jsonobj.Object, err error) {
	params, err := jsonobj.ParseObject(q.Params)
	if err != nil || q.Era != mcp.Modern || !params.Has("requestState") {
		return r, nil, err
	}
	if err := json.Unmarshal([]byte(params.Text("requestState")), &r); err != nil || r.RunID == "" {
		return r, nil, mcp.Errorf(mcp.CodeInvalidParams, "params.requestState: expected what the server has given")
	}
	if answers, err = jsonobj.ParseObject(params.Get("inputResponses")); err != nil {
		return r, nil, mcp.Errorf(mcp.CodeInvalidParams, "params.inputResponses: expected an object")
	}
	return r, answers, nil
}

// inputRequired is the result of a call of a modern client that is asked first.
type inputRequired json.RawMessage

// result returns the due questions to a modern client.
func (a *asking) result(runID string) (inputRequired, error) {
	next := round{RunID: runID, Asked: a.asked}
	for _, one := range a.due {
		next.Asked = append(next.Asked, one.triggerID)
	}
	state, err := json.Marshal(next)
	o := jsonobj.Object{
		{Key: "resultType", Value: json.RawMessage(`"input_required"`)},
		{Key: "inputRequests", Value: requests(a.due).JSON()}, {Key: "requestState", Value: jsonobj.Quote(string(state))},
	}
	return inputRequired(o.JSON()), err
}

// end withdraws the current question.
func (a *asking) end() {
	if a.current != "" {
		a.cancel()
		<-a.answered
		a.current = ""
	}
}
