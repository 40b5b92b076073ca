package report

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/schemas"
)

// logWidth is the most characters that a name or a reason has in a log.
const logWidth = 400

// Log shows progress where no line can be redrawn. It writes one line for every rollout that is
// suspended, resumed, repeated or finished, and after a minute of silence, then ever more rarely, what
// the run waits for.
// It is safe for concurrent use and has no goroutine: call Tick when it says.
type Log struct {
	mu sync.Mutex
	w  io.Writer
	o  ProgressOptions
	x  *Execution
	// spoke is the time of its last line, beat how long it may be silent after that.
	spoke time.Time
	beat  time.Duration
}

// NewLog makes a log of the events that it is given, and adds them to x.
func NewLog(w io.Writer, x *Execution, o ProgressOptions) *Log {
	o = o.withDefaults()
	return &Log{w: w, o: o, x: x, spoke: o.Now(), beat: beatAfter}
}

// Tick writes what is worked on and waited for, if the log was silent for long enough. It returns when
// to call it next.
func (l *Log) Tick() (next time.Duration, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.o.Now()
	if silent := now.Sub(l.spoke); l.o.Look == nil || silent < l.beat {
		return min(max(l.beat-silent, time.Second), beatAfter), nil
	}
	standing, err := l.o.Look()
	if err != nil {
		return time.Second, err
	}
	var out []string
	if standing.Running > 0 {
		out = append(out, fmt.Sprintf("%d running", standing.Running))
	}
	if standing.Scoring > 0 {
		out = append(out, fmt.Sprintf("%d scoring", standing.Scoring))
	}
	if standing.Awaited != (Awaited{}) || len(out) == 0 {
		out = append(out, standing.waiting(now))
	}
	l.spoke, l.beat = now, min(2*l.beat, beatMost)
	if l.x.runID == "" {
		_, err = fmt.Fprintln(l.w, standing.Watching(now))
		return beatAfter, err
	}
	_, err = fmt.Fprintf(l.w, "[%d/%d] %s\n", l.x.Finished(), max(l.x.Total, l.x.Finished()), strings.Join(out, ", "))
	return beatAfter, err
}

// Event adds an event and, if it is of interest, writes a line for it.
func (l *Log) Event(e schemas.Event) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	data, name := l.x.add(e)
	what, more := l.say(e, data)
	if what == "" {
		return nil
	}
	if name == "" {
		name = "run " + e.RunID
	}
	text := fmt.Sprintf("[%d/%d] %-9s  %s", l.x.Finished(), max(l.x.Total, l.x.Finished()), what, l.clean(name))
	if more != "" {
		text += "  " + l.clean(more)
	}
	l.spoke, l.beat = l.o.Now(), beatAfter
	_, err := fmt.Fprintln(l.w, text)
	return err
}

func (l *Log) clean(s string) string { return shorten(redact.Line(l.o.Redact.String(s)), logWidth) }

// say returns the word for an event and its details. The word is empty if the event is not shown.
func (l *Log) say(e schemas.Event, data eventData) (what, more string) {
	switch e.Type {
	case schemas.EventRolloutStarted:
		if l.o.Verbose {
			return "started", ""
		}
	case schemas.EventRolloutSuspended:
		return "suspended", awaited(data.Triggers)
	case schemas.EventRolloutScoring:
		return "scoring", awaited(data.Triggers)
	case schemas.EventTriggerDelivered:
		if l.o.Verbose {
			return "delivered", fmt.Sprintf("%s by %s", data.Status, data.By)
		}
	case schemas.EventQuestionAsked:
		return "asked", "its job asks a person: evalrun triggers"
	case schemas.EventRolloutResumed:
		return "resumed", fmt.Sprintf("segment %d", data.Segment)
	case schemas.EventRolloutRetried:
		more = fmt.Sprintf("attempt %d", data.Attempt)
		if data.AfterMs > 0 {
			more += " in " + formatDuration(milliseconds(data.AfterMs))
		}
		if data.Fault != nil {
			more += ", after " + faultLine(data.Fault)
		}
		return "retried", more
	case schemas.EventRolloutFinished:
		switch {
		case data.Fault != nil:
			more = faultLine(data.Fault)
		case data.Score != nil:
			more = "score " + formatScore(data.Score)
		}
		return string(l.x.verdict(e.RunID, data)), more
	case schemas.EventRunFinished:
		return "finished", ""
	}
	return "", ""
}

func awaited(triggers []schemas.SuspendTrigger) string {
	if len(triggers) == 0 {
		return ""
	}
	out := "waiting for " + triggers[0].Type + " " + triggers[0].ItemKey
	if len(triggers) > 1 {
		out += fmt.Sprintf(" and %d more", len(triggers)-1)
	}
	if d := triggers[0].Deadline; d != nil {
		out += ", until " + d.UTC().Format(time.RFC3339)
	}
	return out
}
