package eval

import (
	"context"
	"encoding/json"
)

// Python runs the code of evaluators that are written in Python. An evaluator reaches it through its
// [Subject], as it does a judge.
type Python interface {
	// Do sends a request to a worker that has the code, and returns its answer. The error is a
	// [*NotAsked] if this machine lacks what runs the code.
	Do(ctx context.Context, c Code, op string, request any) (json.RawMessage, error)
}

// Code says what runs the code of an evaluator.
type Code struct {
	// Kind is the kind of worker.
	Kind string
	// Dir is the folder of the code, absolute. The interpreter is that of the project to which it
	// belongs, unless Interpreter names one: a path relative to Dir, or a name in PATH.
	Dir         string
	Interpreter string
}
