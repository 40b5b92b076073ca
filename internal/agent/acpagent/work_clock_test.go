package acpagent

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evalrun/evalrun/internal/fault"
)

func TestWorkClockStandsWhileCallsAreHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		over := fault.New(fault.Timeout, "over")
		ctx, c, stop := newWorkClock(t.Context(), 10*time.Second, over)
		defer stop()
		time.Sleep(4 * time.Second)
		c.hold(true)
		time.Sleep(time.Hour)
		c.hold(true) // two at once
		c.hold(false)
		time.Sleep(time.Hour)
		if got := c.waited(); got != 2*time.Hour {
			t.Errorf("waited for %v while a call is held", got)
		}
		if got := time.Until(c.deadline()); got != 6*time.Second {
			t.Errorf("it ends in %v while a call is held", got)
		}
		c.hold(false)
		if got := time.Until(c.deadline()); got != 6*time.Second {
			t.Errorf("it ends in %v", got)
		}
		time.Sleep(6*time.Second - time.Nanosecond)
		if ctx.Err() != nil {
			t.Fatal("ended too early")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if !errors.Is(context.Cause(ctx), over) || c.waited() != 2*time.Hour {
			t.Errorf("cause %v, waited for %v", context.Cause(ctx), c.waited())
		}
	})
}

func TestWorkClockWithoutLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, c, stop := newWorkClock(t.Context(), 0, nil)
		time.Sleep(1000 * time.Hour)
		c.hold(true)
		time.Sleep(time.Second)
		c.hold(false)
		if ctx.Err() != nil || c.waited() != time.Second {
			t.Error(ctx.Err(), c.waited())
		}
		stop()
	})
}
