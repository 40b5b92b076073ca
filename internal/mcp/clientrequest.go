package mcp

import (
	"encoding/json"
	"errors"

	"github.com/evalrun/evalrun/internal/jsonobj"
)

// The requests that servers make of clients.
const (
	AskElicitation = "elicitation/create"
	AskSampling    = "sampling/createMessage"
	AskRoots       = "roots/list"
)

// MaxRounds is how often a modern server may ask for more input for one request.
const MaxRounds = 10

var ErrRounds = Errorf(CodeInternal, "the server asked for input %d times", MaxRounds)

// AnswerOf splits an answer into what a handler of package mcp returns.
func AnswerOf(result json.RawMessage, err error) (json.RawMessage, *Error) {
	var said *Error
	switch {
	case errors.As(err, &said):
		return nil, said
	case err != nil:
		return nil, Errorf(CodeInternal, "the client did not answer: %v", err)
	}
	return result, nil
}

// DefaultAnswer answers a server where no client can. A person would decline, there are no roots,
// and nobody samples.
func DefaultAnswer(method string) (json.RawMessage, *Error) {
	switch method {
	case AskElicitation:
		return json.RawMessage(`{"action":"decline"}`), nil
	case AskRoots:
		return json.RawMessage(`{"roots":[]}`), nil
	}
	return nil, Errorf(CodeMethodNotFound, "the client does not support %s", method)
}

// Supports reports whether a client with these capabilities can answer a request.
func Supports(capabilities jsonobj.Object, method string) bool {
	switch method {
	case AskElicitation:
		return capabilities.Has("elicitation")
	case AskSampling:
		return capabilities.Has("sampling")
	case AskRoots:
		return capabilities.Has("roots")
	}
	return false
}

// InputRequest is a server's question as one of inputRequests. A request of 2025-11-25 may come
// without params, which roots/list does not need, but the Go SDK's client reads them all the same.
func InputRequest(method string, params json.RawMessage) json.RawMessage {
	if params == nil {
		params = json.RawMessage("{}")
	}
	return jsonobj.Object{{Key: "method", Value: jsonobj.Quote(method)}, {Key: "params", Value: params}}.JSON()
}

// WithResponses are the params of a call that is made again, with the answers to its server's
// questions and the state that the server gave.
func WithResponses(params, responses jsonobj.Object, state json.RawMessage) jsonobj.Object {
	params = params.Delete("inputResponses", "requestState").Set("inputResponses", responses.JSON())
	if state != nil {
		params = params.Set("requestState", state)
	}
	return params
}

// CancelAnswer is sent to a modern server when there is no answer.
var CancelAnswer = json.RawMessage(`{"action":"cancel"}`)

// AnswersTo returns the answers to inputRequests, by their keys.
func AnswersTo(requests jsonobj.Object,
	answer func(key, method string, params json.RawMessage) (json.RawMessage, *Error)) (responses jsonobj.Object) {
	for _, r := range requests {
		asked, _ := jsonobj.ParseObject(r.Value)
		result, failed := answer(r.Key, asked.Text("method"), asked.Get("params"))
		if failed != nil {
			result = CancelAnswer
		}
		responses = append(responses, jsonobj.Member{Key: r.Key, Value: result})
	}
	return responses
}
