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

// stretch is something that took time. Of a moment both ends are the same.
type stretch struct {
	Lane     string
	From, To time.Time
	// Kind is the class of its bar: work, wait, queue, eval, segm, tool or del; a segment that failed
	// has fault.
	Kind  string
	Label string
	// Open says that it still goes on.
	Open bool
}

// For is how long it took.
func (s stretch) For() time.Duration { return s.To.Sub(s.From) }
