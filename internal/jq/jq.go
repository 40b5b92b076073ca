// Package jq evaluates jq expressions over what servers answer and agents give out. It knows nothing of
// jobs and evaluators.
package jq

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/itchyny/gojq"
)

// timeout is how long an expression may take.
const timeout = 30 * time.Second

// Expression is a compiled expression.
type Expression gojq.Code

// Compile compiles an expression. The error says what is wrong with it.
func Compile(text string) (*Expression, error) {
	query, err := gojq.Parse(text)
	if err != nil {
		return nil, err
	}
	code, err := gojq.Compile(query)
	return (*Expression)(code), err
}

// Value gives the expression's first value for a document; null if there is none.
func (e *Expression) Value(ctx context.Context, in json.RawMessage) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	dec := json.NewDecoder(strings.NewReader(string(in)))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	out, ok := (*gojq.Code)(e).RunWithContext(ctx, v).Next()
	if err, isError := out.(error); isError {
		return nil, err
	}
	if !ok {
		return json.RawMessage("null"), nil
	}
	return gojq.Marshal(out)
}

// Truth evaluates a condition.
func (e *Expression) Truth(ctx context.Context, in json.RawMessage) (bool, error) {
	v, err := e.Value(ctx, in)
	return string(v) != "null" && string(v) != "false", err
}
