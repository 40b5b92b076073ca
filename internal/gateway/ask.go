package gateway

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
)

// What servers ask of clients.
const (
	askElicitation = "elicitation/create"
	askSampling    = "sampling/createMessage"
	askRoots       = "roots/list"
)

// maxRounds is how often a modern server may ask for more input for one request.
const maxRounds = 10

var errRounds = mcp.Errorf(mcp.CodeInternal, "the server asked for input %d times", maxRounds)

// answerOf splits an answer into what package mcp wants of a handler.
func answerOf(result json.RawMessage, err error) (json.RawMessage, *mcp.Error) {
	var said *mcp.Error
	switch {
	case errors.As(err, &said):
		return nil, said
	case err != nil:
		return nil, mcp.Errorf(mcp.CodeInternal, "the client did not answer: %v", err)
	}
	return result, nil
}

// alone answers a server where no client can: a person would decline, there are no roots, and nobody samples.
func alone(method string) (json.RawMessage, *mcp.Error) {
	switch method {
	case askElicitation:
		return json.RawMessage(`{"action":"decline"}`), nil
	case askRoots:
		return json.RawMessage(`{"roots":[]}`), nil
	}
	return nil, mcp.Errorf(mcp.CodeMethodNotFound, "the client does not support %s", method)
}

// able reports whether a client with these capabilities can answer a request.
func able(capabilities jsonobj.Object, method string) bool {
	switch method {
	case askElicitation:
		return capabilities.Has("elicitation")
	case askSampling:
		return capabilities.Has("sampling")
	case askRoots:
		return capabilities.Has("roots")
	}
	return false
}

// answerInputs calls a modern server for a legacy client: what the server wants to know before it answers the client is asked in the way that it knows.
func (l *link) answerInputs(ctx context.Context, w *watch, c *mcp.Client, r *mcp.Request, call mcp.Call) (json.RawMessage, error) {
	for range maxRounds {
		result, err := c.Call(ctx, call)
		if err != nil {
			return nil, err
		}
		o, err := jsonobj.ParseObject(result)
		if err != nil || o.Text("resultType") != "input_required" || l.e.policy.asksPerson() && inputOf(result) != nil {
			return result, nil
		}
		var responses jsonobj.Object
		for _, request := range o.Object("inputRequests") {
			asked, _ := jsonobj.ParseObject(request.Value)
			w.pause()
			answer, failed := l.askClient(ctx, r, asked.Text("method"), asked.Get("params"))
			w.resume()
			if failed != nil {
				return nil, failed
			}
			responses = append(responses, jsonobj.Member{Key: request.Key, Value: answer})
		}
		params, err := jsonobj.ParseObject(call.Params)
		if err != nil {
			return nil, err
		}
		call.Params = withResponses(params, responses, o.Get("requestState")).JSON()
	}
	return nil, errRounds
}

// withResponses are the params of a call that is made again, with the answers to what its server asked and the state that it gave.
func withResponses(params, responses jsonobj.Object, state json.RawMessage) jsonobj.Object {
	params = params.Delete("inputResponses", "requestState").Set("inputResponses", responses.JSON())
	if state != nil {
		params = params.Set("requestState", state)
	}
	return params
}

// cancelAnswer is the answer to a modern server where there is none.
var cancelAnswer = json.RawMessage(`{"action":"cancel"}`)

// answersTo are the answers to inputRequests, by their keys.
func answersTo(requests jsonobj.Object, answer func(key, method string, params json.RawMessage) (json.RawMessage, *mcp.Error)) (responses jsonobj.Object) {
	for _, r := range requests {
		asked, _ := jsonobj.ParseObject(r.Value)
		result, failed := answer(r.Key, asked.Text("method"), asked.Get("params"))
		if failed != nil {
			result = cancelAnswer
		}
		responses = append(responses, jsonobj.Member{Key: r.Key, Value: result})
	}
	return responses
}

// askClient asks a legacy client in the middle of its request.
func (l *link) askClient(ctx context.Context, r *mcp.Request, method string, params json.RawMessage) (json.RawMessage, *mcp.Error) {
	if !able(l.capabilities, method) {
		return alone(method)
	}
	return answerOf(r.Ask(ctx, method, params))
}
