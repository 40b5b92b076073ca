package tasks

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/gateway/gatewaytest"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
)

// What a legacy server is told: the client's own words where it has any, else how long its task is
// to be kept.
func TestTaskParam(t *testing.T) {
	t.Parallel()
	legacy, modern := &mcp.Request{Era: mcp.Legacy}, &mcp.Request{Era: mcp.Modern}
	for name, test := range map[string]struct {
		c      toolCall
		asTask bool
		params string
		want   string
	}{
		"its words":          {toolCall{r: legacy, asTask: true, source: upstreamSource, ttl: time.Second}, true, `{"name":"t","task":{"other":1}}`, `{"name":"t","task":{"other":1}}`},
		"its time, bounded":  {toolCall{r: legacy, asTask: true, source: requiredTask, ttl: time.Second}, true, `{"task":{"ttl":9000}}`, `{"task":{"ttl":1000}}`},
		"in its place":       {toolCall{r: legacy, source: requiredTask, ttl: time.Second}, true, `{}`, `{"task":{"ttl":1000}}`},
		"a modern client":    {toolCall{r: modern, asTask: true, source: upstreamSource, ttl: time.Second}, true, `{}`, `{"task":{"ttl":1000}}`},
		"not as a task":      {toolCall{r: legacy, asTask: true, source: upstreamSource}, false, `{"name":"t","task":{}}`, `{"name":"t"}`},
		"a server without":   {toolCall{r: legacy, asTask: true, source: ownTask}, true, `{"name":"t","task":{}}`, `{"name":"t"}`},
		"its server decides": {toolCall{r: legacy, asTask: true, source: offeredTask}, true, `{"task":{}}`, `{}`},
	} {
		params, err := jsonobj.ParseObject([]byte(test.params))
		if err != nil {
			t.Fatal(err)
		}
		if got := string((&taskCall{c: test.c}).taskParam(params, test.asTask).JSON()); got != test.want {
			t.Errorf("%s: got %s, want %s", name, got, test.want)
		}
	}
}

// A call that starts a task outlives its client for a moment, but not the gateway.
func TestWithStartGrace(t *testing.T) {
	t.Parallel()
	task := startTask(t, gateway.Server{Name: "s"})
	gone := errors.New("the client has gone")
	ctx, leave := context.WithCancelCause(t.Context())
	starting, started := (&taskCall{t: task}).withStartGrace(ctx)
	defer started()
	leave(gone)
	if starting.Err() != nil {
		t.Error("the start ends with its client")
	}
	task.s.e.Close()
	gatewaytest.WaitFor(t, starting.Done())
	if !errors.Is(context.Cause(starting), gone) {
		t.Error(context.Cause(starting))
	}
}
