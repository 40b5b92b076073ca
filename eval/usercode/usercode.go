// Package usercode says what evaluators that are code of the user get to know of a rollout, and reads
// what they answer.
package usercode

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/evaluator"
	"github.com/evalrun/evalrun/eval/pyvalue"
	"github.com/evalrun/evalrun/eval/spans"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/jsonobj"
)

// document is what an evaluator that is code of the user gets to know of a rollout.
type document struct {
	Evaluation documentEvaluation `json:"evaluation"`
	// Criteria are the evaluation's criteria for this evaluator, null if there are none.
	Criteria  *pyvalue.Object   `json:"criteria"`
	Output    json.RawMessage   `json:"output"`
	ToolCalls []spans.ToolCall  `json:"toolCalls"`
	Trace     []json.RawMessage `json:"trace"`
	RolloutID string            `json:"rolloutId"`
	Agent     string            `json:"agent"`
	Epoch     int               `json:"epoch"`
	Workspace string            `json:"workspace"`
	// Resume holds the payloads for which the evaluator has waited, by the ids of its interrupts, and
	// Deliveries all else that is known of them; nil if it has not waited.
	Resume     map[string]json.RawMessage `json:"resume,omitempty"`
	Deliveries map[string]eval.Delivery   `json:"deliveries,omitempty"`
}

type documentEvaluation struct {
	ID                    string                     `json:"id"`
	Name                  string                     `json:"name"`
	Inputs                json.RawMessage            `json:"inputs"`
	ExpectedOutput        json.RawMessage            `json:"expectedOutput"`
	Criteria              map[string]json.RawMessage `json:"criteria"`
	ExpectedAgentBehavior string                     `json:"expectedAgentBehavior,omitempty"`
}

// Bind makes e an evaluator that is code of the user: call hands the code the document of a rollout,
// and returns what it answers. Criteria are optional, and the code may wait.
func Bind(e *evaluator.Evaluator, call func(ctx context.Context, s eval.Subject, document []byte) ([]byte, error)) {
	e.CriteriaOptional = true
	ask := func(ctx context.Context, s eval.Subject, criteria *pyvalue.Object,
		deliveries map[string]eval.Delivery) evaluator.Outcome {
		document, err := Document(s, criteria, deliveries)
		if err != nil {
			return evaluator.Outcome{Failure: err}
		}
		answer, err := call(ctx, s, document)
		if err != nil {
			return evaluator.Outcome{Failure: err}
		}
		return Answered(answer)
	}
	e.Score = func(ctx context.Context, s eval.Subject, criteria *pyvalue.Object) evaluator.Outcome {
		return ask(ctx, s, criteria, nil)
	}
	e.Continue = func(ctx context.Context, s eval.Subject, criteria *pyvalue.Object,
		deliveries map[string]eval.Delivery) evaluator.Outcome {
		if err := evaluator.Undelivered(deliveries); err != nil {
			return evaluator.Outcome{Failure: err}
		}
		return ask(ctx, s, criteria, deliveries)
	}
}

// Document is what an evaluator that is code of the user gets to know of a rollout: a JSON object.
// deliveries is nil if it has not waited.
func Document(s eval.Subject, criteria *pyvalue.Object, deliveries map[string]eval.Delivery) ([]byte, error) {
	in := document{
		Evaluation: documentEvaluation{s.Evaluation.ID, s.Evaluation.Name, s.Evaluation.Inputs,
			s.Evaluation.ExpectedOutput,
			s.Evaluation.Criteria, s.Evaluation.ExpectedAgentBehavior},
		Criteria: criteria, Output: s.Output, ToolCalls: spans.ToolCalls(s.Trace), Trace: []json.RawMessage{},
		RolloutID: s.RolloutID, Agent: s.Agent, Epoch: s.Epoch, Workspace: s.Workspace,
	}
	if len(criteria.Keys) == 0 {
		in.Criteria = nil
	}
	if deliveries != nil {
		in.Deliveries, in.Resume = deliveries, make(map[string]json.RawMessage, len(deliveries))
		for id, d := range deliveries {
			in.Resume[id] = d.Payload
		}
	}
	for _, segment := range s.Trace {
		for _, span := range segment {
			if json.Valid(span) {
				in.Trace = append(in.Trace, span)
			}
		}
	}
	return jsonobj.Marshal(in)
}

// Answered reads what an evaluator that is code of the user has answered: a score with details, or
// interrupts.
func Answered(data []byte) evaluator.Outcome {
	const want = `expected one JSON document such as {"score": 0.5}`
	v, err := pyvalue.Parse(data)
	if err != nil {
		return evaluator.Broken("the evaluator's answer is %w; %s", err, want)
	}
	answer, ok := v.(*pyvalue.Object)
	if !ok {
		return evaluator.Broken("the evaluator's answer is %s; %s", pyvalue.KindOf(v), want)
	}
	var twice input.Problem
	if _, err := input.ParseJSON("the evaluator's answer", data); errors.As(err, &twice) && twice.Key == "score" {
		return evaluator.Broken("the evaluator's answer: score: %s", twice.Message)
	}
	if _, waits := answer.Values[interruptKey]; waits {
		return waiting(data, answer)
	}
	score, ok := answer.Values["score"].(pyvalue.Number)
	if !ok || score.Float < 0 || score.Float > 1 {
		return evaluator.Broken("the evaluator's answer: score: expected a number from 0 to 1, got %s",
			pyvalue.Str(answer.Values["score"]))
	}
	details := answer.Values["details"]
	switch details.(type) {
	case nil, string, *pyvalue.Object:
		return evaluator.Outcome{Score: score.Float, Details: details}
	}
	return evaluator.Broken("the evaluator's answer: details: expected a string or an object, got %s",
		pyvalue.KindOf(details))
}

// interruptKey is the key under which code answers with the interrupts that it waits for.
const interruptKey = "__interrupt__"

func waiting(data []byte, answer *pyvalue.Object) evaluator.Outcome {
	if _, both := answer.Values["score"]; both {
		return evaluator.Broken("the evaluator's answer: expected either a score or %s, got both", interruptKey)
	}
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		return evaluator.Broken("the evaluator's answer: %s: %w", interruptKey, err)
	}
	return evaluator.Outcome{Wait: raw[interruptKey]}
}
