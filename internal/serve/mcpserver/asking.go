package mcpserver

import (
	"context"
	"slices"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/store"
)

// asking asks a legacy client, in the middle of its tasks/result, what the task wants to know: one
// question at a time, each once, and not any more when somebody else has answered it.
type asking struct {
	questions *questions
	q         *request
	// able says that the client can be asked, and may answer.
	able bool
	// asked are the triggers for which it was asked.
	asked []string
	// current is the trigger for which it is being asked, empty if there is none. cancel withdraws
	// the question; answered gets what its answer has led to.
	current  string
	cancel   context.CancelFunc
	answered chan error
}

func newAsking(questions *questions, q *request) *asking {
	return &asking{questions: questions, q: q, able: q.mayAnswer() && mcp.Supports(q.capabilities(), mcp.AskElicitation), answered: make(chan error, 1)}
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
		if !slices.Contains(a.asked, one.triggerID) {
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
	named := jsonobj.Object{{Key: "taskId", Value: jsonobj.Quote(taskID)}}
	params := mcp.WithMeta(one.params(), mcp.MetaRelatedTask, named.JSON())
	go func() {
		response, err := a.q.Ask(asking, mcp.AskElicitation, params)
		if err != nil { // it cannot or will not answer; the question stays open
			a.answered <- nil
			return
		}
		a.answered <- a.questions.answer(ctx, a.q, one, response)
	}()
}

// next notes that the client has answered.
func (a *asking) next() {
	a.cancel()
	a.current = ""
}

// end withdraws the question that is being asked.
func (a *asking) end() {
	if a.current != "" {
		a.cancel()
		<-a.answered
		a.current = ""
	}
}
