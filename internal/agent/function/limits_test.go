package function

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/fault"
)

func TestOutputLimit(t *testing.T) {
	toFile := with(shell(`yes | head -c 1000 > "$EVALRUN_OUTPUT_FILE"`), Settings{Output: OutputFile})
	lastLine := with(shell("yes; echo {}"), Settings{Output: OutputLastLine})
	for name, e := range map[string]agent.Entry{
		"endless":         shell("exec yes"),
		"endless logging": lastLine,
		"one byte more":   shell(`printf '"%0099d"' 0`),
		"in a file":       toFile,
	} {
		seg := segment(t)
		seg.OutputBytes = 100
		out := run(t, e, seg)
		if out.Fault == nil || out.Fault.Category != fault.OutputLimit || !strings.Contains(out.Fault.Message, "100 bytes") {
			t.Errorf("%s: got %+v", name, out.Fault)
		}
	}
	seg := segment(t)
	seg.OutputBytes = 100
	if out := run(t, shell(`printf '"%098d"' 0`), seg); len(out.Output) != 100 {
		t.Errorf("exactly the limit: got %+v", out.Fault)
	}
}

func TestTimeout(t *testing.T) {
	hang := shell("echo 'still busy' >&2; exec sleep 1000")
	slow := hang
	slow.Timeout = 1e6
	for name, tt := range map[string]struct {
		e       agent.Entry
		timeout time.Duration
	}{"of the segment": {hang, time.Millisecond}, "of the entry": {slow, 0}, "of the entry, shorter": {slow, time.Hour}} {
		seg := segment(t)
		seg.Timeout = tt.timeout
		out := run(t, tt.e, seg)
		if out.Fault == nil || out.Fault.Category != fault.Timeout || !strings.Contains(out.Fault.Message, "longer than 1ms") {
			t.Errorf("%s: got %+v", name, out.Fault)
		}
	}
}

func TestContextThatIsDoneEndsTheAgent(t *testing.T) {
	for name, tt := range map[string]struct {
		cause error
		want  fault.Category
	}{
		"for a reason of ours": {fault.New(fault.SuspendTimeout, "that is over"), fault.SuspendTimeout},
		"for another":          {errors.New("SIGINT"), fault.Interrupted},
		"for none":             {nil, fault.Interrupted},
	} {
		t.Run(name, func(t *testing.T) {
			// Given an agent that holds a FIFO open for as long as it lives.
			seg := segment(t)
			fifo := filepath.Join(seg.BaseDir, "life")
			if err := syscall.Mkfifo(fifo, 0o600); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			ended := make(chan error, 1)
			go func() {
				life, err := os.Open(fifo) // waits for the agent
				cancel(tt.cause)
				if err == nil {
					_, err = io.ReadAll(life)
				}
				ended <- err
			}()
			// When the context is done, then the agent is gone.
			out := runWith(t, ctx, shell("exec 3>life; exec sleep 1000"), agent.Options{}, seg)
			if out.Fault == nil || out.Fault.Category != tt.want {
				t.Errorf("got %+v", out)
			}
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}
