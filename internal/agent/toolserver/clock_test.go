package toolserver

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evalrun/evalrun/internal/fault"
)

func TestClockStandsWhileCallsAreHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		over := fault.New(fault.Timeout, "over")
		ctx, c, stop := NewClock(t.Context(), 10*time.Second, over)
		defer stop()
		time.Sleep(4 * time.Second)
		c.Hold(true)
		time.Sleep(time.Hour)
		c.Hold(true) // two at once
		c.Hold(false)
		time.Sleep(time.Hour)
		if got := c.Waited(); got != 2*time.Hour {
			t.Errorf("waited for %v while a call is held", got)
		}
		if got := time.Until(c.Deadline()); got != 6*time.Second {
			t.Errorf("it ends in %v while a call is held", got)
		}
		c.Hold(false)
		if got := time.Until(c.Deadline()); got != 6*time.Second {
			t.Errorf("it ends in %v", got)
		}
		time.Sleep(6*time.Second - time.Nanosecond)
		if ctx.Err() != nil {
			t.Fatal("ended too early")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if !errors.Is(context.Cause(ctx), over) || c.Waited() != 2*time.Hour {
			t.Errorf("cause %v, waited for %v", context.Cause(ctx), c.Waited())
		}
	})
}

func TestClockWithoutLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, c, stop := NewClock(t.Context(), 0, nil)
		time.Sleep(1000 * time.Hour)
		c.Hold(true)
		time.Sleep(time.Second)
		c.Hold(false)
		if ctx.Err() != nil || c.Waited() != time.Second {
			t.Error(ctx.Err(), c.Waited())
		}
		stop()
	})
}
