package web

import (
	"fmt"
	"slices"
	"time"

	"github.com/evalrun/evalrun/internal/report"
	"github.com/evalrun/evalrun/schemas"
)

// clockWords are the words for the kinds of the clock.
var clockWords = map[string]string{"work": "working", "wait": "waiting", "queue": "queued", "eval": "evaluating"}

// stretches returns the history of a rollout up to now, in the order of the beginnings.
func stretches(d *report.Detail, now time.Time) []stretch {
	end := now
	if d.FinishedAt != nil {
		end = *d.FinishedAt
	}
	out := clock(d, end)
	for _, a := range d.Attempts {
		kind := "segm"
		if a.Outcome == "failed" || a.Outcome == "interrupted" {
			kind = "fault"
		}
		out = append(out, stretch{
			Lane: laneSegments, From: a.StartedAt, To: a.EndedAt, Kind: kind,
			Label: fmt.Sprintf("%d.%d %s", a.Segment, a.Attempt, a.Outcome),
		})
	}
	if d.Status == schemas.StateRunning {
		out = append(out, stretch{
			Lane: laneSegments, From: d.StateSince, To: end, Kind: "segm",
			Label: fmt.Sprintf("%d running", d.Segments), Open: true,
		})
	}
	for _, w := range d.Waits {
		to, open := w.DeliveredAt, false
		if to.IsZero() {
			if to, open = end, w.Open; !open {
				to = endOfWait(d, w, end)
			}
		}
		out = append(out, stretch{
			Lane: laneWaits, From: w.CreatedAt, To: to, Kind: "wait",
			Label: kindOf(w.Type) + " " + nameOfWait(w.Type, w.InterruptID, w.Asked) + ": " + w.State, Open: open,
		})
		if !w.DeliveredAt.IsZero() {
			out = append(out, stretch{
				Lane: laneDelivered, From: w.DeliveredAt, To: w.DeliveredAt, Kind: "del",
				Label: kindOf(w.Type) + ": " + w.Status,
			})
		}
	}
	for _, c := range toolCalls(d) {
		out = append(out, stretch{Lane: laneTools, From: c.From, To: c.To, Kind: "tool", Label: c.Name})
	}
	out = append(out, evaluations(d)...)
	out = slices.DeleteFunc(out, func(s stretch) bool { return s.From.IsZero() || s.To.Before(s.From) })
	slices.SortStableFunc(out, func(a, b stretch) int { return a.From.Compare(b.From) })
	return out
}

// endOfWait returns when a wait without a delivery was given up: when the next segment began, or
// the rollout ended.
func endOfWait(d *report.Detail, w report.Wait, end time.Time) time.Time {
	for _, a := range d.Attempts {
		if a.Segment > w.Segment && a.StartedAt.After(w.CreatedAt) {
			return a.StartedAt
		}
	}
	return end
}

// clock splits the time of a rollout into working, waiting, queued and evaluating, without a gap.
func clock(d *report.Detail, end time.Time) []stretch {
	c := &clockLane{at: d.CreatedAt}
	suspended := false
	for _, a := range d.Attempts {
		if suspended {
			c.until(readyFor(d, a.Segment, c.at, a.StartedAt), "wait")
		}
		c.until(a.StartedAt, "queue")
		c.until(a.EndedAt, "work")
		suspended = a.Outcome == "suspended"
	}
	completed := len(d.Attempts) > 0 && d.Attempts[len(d.Attempts)-1].Outcome == "completed"
	switch {
	case d.Status == schemas.StateRunning:
		if suspended {
			c.until(readyFor(d, d.Segments, c.at, d.StateSince), "wait")
		}
		c.until(d.StateSince, "queue")
		c.until(end, "work")
	case suspended:
		c.until(end, "wait")
	case completed:
		for _, w := range d.Waits {
			if w.EvaluatorID == "" {
				continue
			}
			c.until(w.CreatedAt, "eval")
			if to := w.DeliveredAt; !to.IsZero() {
				c.until(to, "wait")
			} else {
				c.until(end, "wait")
			}
		}
		c.until(end, "eval")
	default:
		c.until(end, "queue")
	}
	if n := len(c.lane); n > 0 && d.FinishedAt == nil {
		c.lane[n-1].Open = true
	}
	return c.lane
}

// readyFor returns when a suspended rollout could go on with a segment: when the last delivery that
// the segment took arrived.
func readyFor(d *report.Detail, segment int, from, most time.Time) time.Time {
	ready := from
	for _, w := range d.Waits {
		if w.TakenBy == segment && w.DeliveredAt.After(ready) {
			ready = w.DeliveredAt
		}
	}
	if ready.After(most) {
		return most
	}
	return ready
}

type clockLane struct {
	at   time.Time
	lane []stretch
}

// until adds a stretch up to a time. It leaves out a stretch that would end before it began.
func (c *clockLane) until(to time.Time, kind string) {
	if !to.After(c.at) {
		return
	}
	if n := len(c.lane); n > 0 && c.lane[n-1].Kind == kind {
		c.lane[n-1].To = to
	} else {
		c.lane = append(c.lane, stretch{Lane: laneClock, From: c.at, To: to, Kind: kind, Label: clockWords[kind]})
	}
	c.at = to
}
