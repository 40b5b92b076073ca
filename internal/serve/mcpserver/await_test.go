package mcpserver

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/service"
	"github.com/evalrun/evalrun/runner"
)

// Given a server that ends while a call reads how its run stands: the wait is over, and that is no
// failure of the call.
func TestTheEndOfTheServerEndsAWait(t *testing.T) {
	t.Parallel()
	st, err := runner.Open(filepath.Join(t.TempDir(), "store"), runner.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	s := service.New(st, service.Config{}, service.Options{})
	ctx, end := context.WithCancelCause(t.Context())
	end(mcp.ErrShutdown)
	r := &results{s, s.Store()}
	if err := r.await(ctx, &request{Request: &mcp.Request{}}, "r", time.Minute, nil); err != nil {
		t.Error(err)
	}
}
