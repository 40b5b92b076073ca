package check

import (
	"context"
	"errors"
	"testing"

	"github.com/evalrun/evalrun/internal/jq"
)

// A jq expression that is ended before it has a value has not found that there is none.
func TestAnExpressionThatIsEnded(t *testing.T) {
	expression, err := jq.Compile("last(range(1e12))")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = (&check{jq: expression}).value(ctx, &scene{value: "x"})
	if missing := new(missingError); err == nil || errors.As(err, &missing) {
		t.Errorf("got %v, expected that the check cannot be decided", err)
	}
}
