package web

import "time"

// The lanes of a timeline, in their order.
const (
	laneClock     = "Clock"
	laneSegments  = "Segments"
	laneWaits     = "Waits for"
	laneDelivered = "Delivered"
	laneTools     = "Tool calls"
	laneScores    = "Evaluators"
)

// stretch is something that took time. Both ends of a moment are the same.
type stretch struct {
	Lane     string
	From, To time.Time
	// Kind is the class of its bar: work, wait, queue, eval, segm, tool or del, or fault for a segment
	// that failed.
	Kind  string
	Label string
	// Open is set if it still goes on.
	Open bool
}

// For returns how long it took.
func (s stretch) For() time.Duration { return s.To.Sub(s.From) }
