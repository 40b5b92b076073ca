package probe

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/evalrun/evalrun/acp"
	"github.com/evalrun/evalrun/internal/peers/fakemcp"
	"github.com/evalrun/evalrun/internal/peers/fakemodel"
)

// forever is longer than any check.
const forever = "3600000"

// askCancelTool cancels a turn while a tool runs.
func askCancelTool(ctx context.Context, r *rig, c *Check) error {
	a, err := r.start(ctx)
	if err != nil {
		return err
	}
	t, _ := a.remote()
	s, err := r.serve(t, 0)
	if err != nil {
		return err
	}
	session, _, err := a.open(ctx, s)
	if err != nil {
		return err
	}
	if err := s.awaitTools(ctx); err != nil {
		return err
	}
	running := a.begin(ctx, session, call(fakemcp.WaitTool, `{"ms":`+forever+`}`)+" [[SAY the wait is over]]")
	if err := running.until(ctx, func(ctx context.Context) error {
		return s.wait(ctx, has("tools/call", fakemcp.WaitTool, false))
	}); err != nil {
		return fmt.Errorf("the tool was not called: %w", err)
	}
	if err := running.cancel(ctx, c); err != nil {
		return err
	}
	told, stop := context.WithTimeout(ctx, tellPatience)
	defer stop()
	asked := time.Now()
	err = s.wait(told, func(log []fakemcp.Entry) bool {
		return slices.ContainsFunc(log, func(e fakemcp.Entry) bool {
			return e.Tool == fakemcp.WaitTool && e.Answered && e.Cancelled
		})
	})
	switch {
	case err == nil:
		c.add(FactServerTold, Yes, time.Since(asked), "the call was cancelled at the server, over %s", t)
	case ctx.Err() != nil:
		return err
	default:
		c.add(FactServerTold, No, timeless, "the call went on at the server, over %s", t)
	}
	c.addClosed(a)
	return nil
}

// addClosed adds a fact about the final state of the tool calls that the agent has announced.
func (c *Check) addClosed(a *process) {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := a.calls.All()
	if len(all) == 0 {
		c.add(FactCallClosed, NA, timeless, "no tool call was announced")
		return
	}
	last := all[len(all)-1]
	c.add(FactCallClosed, whether(last.Ended()), timeless, "its status is %s", last.Status)
}

// askCancelModel cancels a turn while the model answers.
func askCancelModel(ctx context.Context, r *rig, c *Check) error {
	a, err := r.start(ctx)
	if err != nil {
		return err
	}
	session, _, err := a.open(ctx)
	if err != nil {
		return err
	}
	// The model sleeps; an agent that carries directives out itself waits.
	running := a.begin(ctx, session, quote("[[SLEEP "+forever+"]]")+"[[WAIT]]")
	asked := func(all []fakemodel.Request) bool { return slices.ContainsFunc(all, running.asks) }
	err = running.until(ctx, func(ctx context.Context) error {
		ctx, stop := context.WithTimeout(ctx, modelPatience)
		defer stop()
		return r.model.Wait(ctx, asked)
	})
	called := len(running.requests()) > 0
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if err := running.cancel(ctx, c); err != nil {
		return err
	}
	if !called {
		c.add(FactModelLeft, NA, timeless, notCalled)
		return nil
	}
	left, stop := context.WithTimeout(ctx, tellPatience)
	defer stop()
	began := time.Now()
	err = r.model.Wait(left, func(all []fakemodel.Request) bool {
		return slices.ContainsFunc(all, func(r fakemodel.Request) bool {
			return running.mentions(r) && (len(r.Tools) > 0 || !asked(all)) && r.Aborted
		})
	})
	switch {
	case err == nil:
		c.add(FactModelLeft, Yes, time.Since(began), "")
	case ctx.Err() != nil:
		return err
	default:
		c.add(FactModelLeft, No, timeless, "the agent still reads the answer")
	}
	return nil
}

// running is a turn in progress.
type running struct {
	*turn
	session string
	ended   chan struct{}
	err     error
}

// begin begins a turn. It ends by itself, or with the agent.
func (a *process) begin(ctx context.Context, session, text string) *running {
	r := &running{turn: &turn{a: a, word: rand.Text()}, session: session, ended: make(chan struct{})}
	a.turns.Go(func() {
		defer close(r.ended)
		r.err = r.run(ctx, session, text)
	})
	return r
}

var errTooSoon = errors.New("the turn ended before")

// until waits for something during the turn. It is an error if the turn ends before that.
func (r *running) until(ctx context.Context, wait func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-r.ended:
			cancel(errTooSoon)
		case <-ctx.Done():
		}
	}()
	err := wait(ctx)
	if errors.Is(err, errTooSoon) && r.err != nil {
		return fmt.Errorf("%w: %w", err, r.err)
	}
	return err
}

// cancel cancels the turn and tells how it ended.
func (r *running) cancel(ctx context.Context, c *Check) error {
	cancelled := time.Now()
	if err := r.a.conn.Cancel(ctx, r.session); err != nil {
		return err
	}
	<-r.ended // the turn ends at the latest with ctx
	took := time.Since(cancelled)
	var agentError *acp.AgentError
	switch {
	case r.err == nil:
		c.add(FactReturned, r.result.StopReason, took, "")
	case errors.As(r.err, &agentError):
		c.add(FactReturned, "error", took, "%s", refusal(r.err))
	default:
		return fmt.Errorf("after session/cancel: %w", r.err)
	}
	c.Verdict = whether(r.result.StopReason == acp.StopCancelled)
	if c.Verdict == No {
		c.Detail = "the prompt did not return with the stop reason cancelled"
	}
	return nil
}

// quote puts a text on lines that are skipped by an agent which carries out directives itself.
func quote(text string) string { return "> " + strings.ReplaceAll(text, "\n", "\n> ") + "\n" }
