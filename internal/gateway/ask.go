package gateway

import (
	"context"
	"encoding/json"

	"github.com/evalrun/evalrun/internal/gateway/mcptask"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
)

// answerInputs calls a modern server for a legacy client: what the server wants to know before it answers the client is asked in the way that it knows.
func (l *Upstream) answerInputs(ctx context.Context, w *IdleTimer, c *mcp.Client, r *mcp.Request, call mcp.Call) (json.RawMessage, error) {
	for range mcp.MaxRounds {
		result, err := c.Call(ctx, call)
		if err != nil {
			return nil, err
		}
		o, err := jsonobj.ParseObject(result)
		if err != nil || o.Text("resultType") != "input_required" || l.e.policy.AsksPerson() && mcptask.InputOf(result) != nil {
			return result, nil
		}
		var responses jsonobj.Object
		for _, request := range o.Object("inputRequests") {
			asked, _ := jsonobj.ParseObject(request.Value)
			w.Pause()
			answer, failed := l.AskClient(ctx, r, asked.Text("method"), asked.Get("params"))
			w.Resume()
			if failed != nil {
				return nil, failed
			}
			responses = append(responses, jsonobj.Member{Key: request.Key, Value: answer})
		}
		params, err := jsonobj.ParseObject(call.Params)
		if err != nil {
			return nil, err
		}
		call.Params = mcp.WithResponses(params, responses, o.Get("requestState")).JSON()
	}
	return nil, mcp.ErrRounds
}

// AskClient asks a legacy client in the middle of its request.
func (l *Upstream) AskClient(ctx context.Context, r *mcp.Request, method string, params json.RawMessage) (json.RawMessage, *mcp.Error) {
	if !mcp.Supports(l.capabilities, method) {
		return mcp.DefaultAnswer(method)
	}
	return mcp.AnswerOf(r.Ask(ctx, method, params))
}
