package web

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/report"
	"github.com/evalrun/evalrun/schemas"
)

// history is a rollout of segments and waits of any length, which may have ended or not.
func history(r *rand.Rand) (*report.Detail, time.Time) {
	at := time.Date(2026, 11, 22, 1, 0, 0, 0, time.UTC)
	later := func() time.Time {
		at = at.Add(time.Duration(r.ExpFloat64() * float64([]time.Duration{time.Microsecond, time.Second, time.Hour}[r.IntN(3)])).Truncate(time.Microsecond))
		return at
	}
	d := &report.Detail{CreatedAt: at}
	segments := r.IntN(5)
	for n := 1; n <= segments; n++ {
		a := report.Attempt{Segment: n, Attempt: 1, StartedAt: later(), EndedAt: later(), Outcome: "suspended"}
		if n == segments {
			a.Outcome = []string{"suspended", "completed", "failed"}[r.IntN(3)]
		}
		d.Attempts = append(d.Attempts, a)
		if a.Outcome == "suspended" {
			w := report.Wait{Type: "JOB", InterruptID: "i", Segment: n, CreatedAt: a.EndedAt, Open: n == segments}
			if n < segments {
				w.TakenBy, w.DeliveredAt, w.Status = n+1, later(), "successful"
			}
			d.Waits = append(d.Waits, w)
		}
	}
	d.Segments, d.Status = segments, schemas.StatePending
	switch {
	case segments == 0:
	case d.Attempts[segments-1].Outcome == "suspended":
		d.Status = schemas.StateSuspended
	default:
		d.Status = schemas.StateCompleted
		end := later()
		d.FinishedAt = &end
	}
	d.StateSince = at
	return d, later().Add(time.Millisecond)
}

// The lanes of the clock add up to the wall time without a gap, the axis grows with time, and every bar
// is a row of the table.
func TestTheTimelineAddsUp(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		d, now := history(r)
		end := now
		if d.FinishedAt != nil {
			end = *d.FinishedAt
		}
		at := d.CreatedAt
		all := stretches(d, now)
		for _, s := range all {
			if s.Lane != laneClock {
				continue
			}
			if !s.From.Equal(at) {
				t.Fatalf("the clock goes on at %v, not at %v: %+v", s.From, at, all)
			}
			at = s.To
		}
		if !at.Equal(end) {
			t.Fatalf("the clock ends at %v, not at %v: %+v", at, end, all)
		}
		a := newAxis(all)
		last := -1.0
		for i, cut := range a.cuts {
			x := a.place(cut)
			if x < last || x < 0 || x > 1.000001 {
				t.Fatalf("cut %d is at %v, after %v", i, x, last)
			}
			last = x
		}
		if len(a.cuts) > 1 && last < 0.999 {
			t.Fatalf("the axis ends at %v", last)
		}
		if drawn := draw(all); drawn == nil && len(all) > 0 && all[0].For() > 0 || drawn != nil && len(drawn.Bars) != len(all) {
			t.Fatalf("%+v is drawn as %+v", all, drawn)
		}
	}
}

func TestLongIdleTimesAreCut(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 22, 1, 0, 0, 0, time.UTC)
	end := at.Add(3*time.Second + 24*time.Hour)
	d := &report.Detail{CreatedAt: at}
	d.Status, d.FinishedAt = schemas.StateCompleted, &end
	d.Attempts = []report.Attempt{{Segment: 1, Attempt: 1, Outcome: "suspended", StartedAt: at, EndedAt: at.Add(time.Second)}, {Segment: 2, Attempt: 1, Outcome: "completed", StartedAt: end.Add(-2 * time.Second), EndedAt: end}}
	d.Waits = []report.Wait{{Type: "TASK", TakenBy: 2, CreatedAt: at.Add(time.Second), DeliveredAt: end.Add(-2 * time.Second)}}
	a := newAxis(stretches(d, end))
	if from, to := a.place(at.Add(time.Second)), a.place(end.Add(-2*time.Second)); len(a.idle) != 1 || to-from > idleWidth+0.001 || from < 0.28 || from > 0.30 {
		t.Errorf("a day is drawn from %v to %v", from, to)
	}
}

func TestManyCallsAreFewBars(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 22, 1, 0, 0, 0, time.UTC)
	all := []stretch{{Lane: laneClock, From: at, To: at.Add(time.Hour), Kind: "work", Label: "working"}}
	for i := range 50_000 {
		from := at.Add(time.Duration(i) * 70 * time.Millisecond)
		all = append(all, stretch{Lane: laneTools, From: from, To: from.Add(time.Millisecond), Kind: "tool", Label: "look"})
	}
	if d := draw(all); len(d.Bars) > 1100 || d.Merged+len(d.Bars) != len(all) {
		t.Errorf("%d bars, %d merged", len(d.Bars), d.Merged)
	}
}
