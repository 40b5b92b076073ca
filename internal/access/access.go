// Package access identifies the callers of the service and their rights: scopes, the identity of a
// caller, and the tokens that prove it. It knows nothing of HTTP or of the services that are
// called.
package access

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/input"
)

// Scope is a right of a caller.
type Scope string

// The scopes.
const (
	Read    Scope = "read"    // see runs, results, events and triggers
	Run     Scope = "run"     // start and cancel runs
	Deliver Scope = "deliver" // answer what rollouts wait for
	Admin   Scope = "admin"   // everything
)

// Scopes are all scopes.
var Scopes = []Scope{Read, Run, Deliver, Admin}

// ParseScopes reads scopes with commas between them.
func ParseScopes(text string) (out []Scope, err error) {
	var known []string
	for _, s := range Scopes {
		known = append(known, string(s))
	}
	for one := range strings.SplitSeq(text, ",") {
		one = strings.TrimSpace(one)
		if !slices.Contains(known, one) {
			return nil, fmt.Errorf("expected scopes of %s, got %q%s", strings.Join(known, ", "), one, input.Suggest(one, known))
		}
		if !slices.Contains(out, Scope(one)) {
			out = append(out, Scope(one))
		}
	}
	return out, nil
}

// Identity is a caller.
type Identity struct {
	// ID is the id of the caller's token, Name what people call it.
	ID, Name string
	Scopes   []Scope
}

// May reports whether the caller has a scope. Admin includes every scope.
func (i Identity) May(s Scope) bool {
	return slices.Contains(i.Scopes, s) || slices.Contains(i.Scopes, Admin)
}

type contextKey struct{}

// With returns a context that holds the caller.
func With(ctx context.Context, i Identity) context.Context {
	return context.WithValue(ctx, contextKey{}, i)
}

// From returns the caller. The zero Identity, which may do nothing, is nobody.
func From(ctx context.Context) Identity {
	i, _ := ctx.Value(contextKey{}).(Identity)
	return i
}
