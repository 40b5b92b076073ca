package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/gateway/gatewaytest"

	taskserver "github.com/evalrun/evalrun/fixtures/mcp/tasks/server"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/testenv"
)

// A subscription to tasks lasts, however long the result of one of them is.
func TestSubscriptionOutlivesALongResult(t *testing.T) {
	testenv.NeedSlow(t)
	if testenv.Short() {
		t.Skip("so long a result takes the race detector half a minute")
	}
	_, _, c := tasksBehind(t, taskserver.Modern, Options{}, mcp.Modern)
	long, other := c.Task("compute", fmt.Sprintf(`{"ms":0,"text":%q}`, strings.Repeat("x", 9<<20))), c.Task("compute", `{"ms":60000,"text":"y"}`)
	c.Until(long, "completed")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := c.Call(ctx, mcp.Call{Method: mcp.MethodListen, Notified: c.Notified, Params: json.RawMessage(fmt.Sprintf(`{"notifications":{"taskIds":[%q,%q]}}`, long, other))})
		ended <- err
	}()
	if n := c.Note(long, "completed"); len(n.Get("result")) < 9<<20 {
		t.Errorf("%d bytes", len(n.Get("result")))
	}
	c.Must(mcp.MethodTasksCancel, `{"taskId":%q}`, other)
	c.Note(other, "cancelled")
	cancel()
	if err := gatewaytest.WaitFor(t, ended); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// A subscription that was cut is not complete.
func TestEndsOfSubscriptions(t *testing.T) {
	t.Parallel()
	full := errors.New("the client does not read")
	for cause, complete := range map[error]bool{mcp.ErrShutdown: true, mcp.ErrCancelled: false, full: false} {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		result, err := gateway.Listened(ctx, &mcp.Request{ID: json.RawMessage("1")})
		if complete != (err == nil) || complete && !strings.Contains(string(result), `"complete"`) || !complete && !errors.Is(err, cause) {
			t.Errorf("%v: %s, %v", cause, result, err)
		}
	}
}
