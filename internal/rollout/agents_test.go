package rollout

import (
	"context"
	"errors"
	"testing"

	"github.com/evalrun/evalrun/internal/agent"
)

var errClosed = errors.New("closed")

// closing is an agent that tells when it is closed.
type closing struct{}

func (closing) Run(context.Context, agent.Segment) (agent.Outcome, error) {
	return agent.Outcome{}, nil
}
func (closing) Close() error { return errClosed }

// Given a run that is let go of while segments use its agents, when the last of them ends, then the
// agents are closed. A segment that begins later has an agent for itself.
func TestAgentsAreClosedWhenNoSegmentUsesThem(t *testing.T) {
	made := 0
	agent.Register(agent.Type{Name: "closing", New: func(agent.Entry, agent.Options) agent.Agent { made++; return closing{} }})
	var a agents
	use := func() {
		t.Helper()
		if _, err := a.acquire(agent.Entry{Name: "x", Type: "closing"}); err != nil {
			t.Fatal(err)
		}
	}
	closes := func(what string, err error, want bool) {
		t.Helper()
		if errors.Is(err, errClosed) != want {
			t.Errorf("%s: got %v, and closed should be %v", what, err, want)
		}
	}
	use()
	closes("a segment ends before", a.release(), false)
	use()
	use()
	closes("the run is let go of", a.close(), false)
	closes("one segment ends", a.release(), false)
	closes("the last one ends", a.release(), true)
	if made != 1 {
		t.Errorf("%d agents were made", made)
	}
	use()
	closes("a late segment ends", a.release(), true)
	closes("once more", a.close(), false)
	if made != 2 {
		t.Errorf("%d agents were made", made)
	}
}
