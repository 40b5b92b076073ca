package program_test

import (
	"fmt"
	"io/fs"
	"testing"

	"github.com/evalrun/evalrun/internal/agent/program"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/sandbox"
)

// What could not be made for a command, such as its container, has the fault of that. What else keeps it from
// starting is the command's.
func TestStartFault(t *testing.T) {
	t.Parallel()
	c := sandbox.Command{Path: "agent", Dir: "/app"}
	for err, want := range map[error]string{
		fmt.Errorf("enter: %w", fault.New(fault.NotRunnable, "no network of its own")): "not-runnable: no network of its own",
		&sandbox.LostError{Err: fmt.Errorf("killed")}:                                  "interrupted: the agent could not be ended: killed",
		fs.ErrPermission: "start: cannot start agent in /app: permission denied",
	} {
		if got := program.StartFault(c, err); got == nil || got.Error() != want {
			t.Errorf("got %v, want %q", got, want)
		}
	}
}
