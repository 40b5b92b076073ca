package agent

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/sandbox"
)

// startFault says why a command could not be started; nil if that is not the command's fault.
func startFault(c sandbox.Command, err error) *fault.Fault {
	for _, ours := range []error{syscall.EAGAIN, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE} {
		if errors.Is(err, ours) {
			return nil
		}
	}
	message := fmt.Sprintf("cannot start %s in %s: %v", c.Path, c.Dir, err)
	switch {
	case errors.Is(err, syscall.ENOENT): // the file itself was found
		message += "; the program that its first line names may be missing"
	case errors.Is(err, syscall.ENOEXEC):
		message += "; a script needs a first line such as #!/bin/sh"
	}
	return fault.New(fault.Start, message)
}

// setupFault is the fault of a process that was not started in its place.
func setupFault(ctx context.Context, err error) *fault.Fault {
	var failed *sandbox.SetupError
	switch {
	case ctx.Err() != nil:
		return causeFault(ctx)
	case errors.As(err, &failed) && failed.Stage == sandbox.StageMain:
		return fault.New(fault.Start, err.Error())
	case errors.As(err, &failed):
		message := err.Error()
		if text := cleanTail([]byte(failed.Output)); text != "" {
			message += "; it printed:\n" + text
		}
		return fault.New(fault.Setup, message)
	}
	return fault.New(fault.Setup, err.Error())
}
