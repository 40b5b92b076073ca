package report

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/schemas"
)

// logWidth is the most characters of a name or a reason in a log.
const logWidth = 400

// Log shows progress where no line can be redrawn: one line for every rollout that is suspended,
// resumed, repeated or finished. It is safe for concurrent use.
type Log struct {
	mu sync.Mutex
	w  io.Writer
	o  ProgressOptions
	x  *Execution
}

// NewLog makes a log of the events that it is given, and adds them to x.
func NewLog(w io.Writer, x *Execution, o ProgressOptions) *Log {
	return &Log{w: w, o: o.withDefaults(), x: x}
}

// Event adds an event and, if it is of interest, writes its line.
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
	_, err := fmt.Fprintln(l.w, text)
	return err
}

func (l *Log) clean(s string) string { return shorten(redact.Line(l.o.Redact.String(s)), logWidth) }

// say gives the word for an event and its details; the word is empty if the event is not shown.
func (l *Log) say(e schemas.Event, data eventData) (what, more string) {
	switch e.Type {
	case schemas.EventRolloutStarted:
		if l.o.Verbose {
			return "started", ""
		}
	case schemas.EventRolloutSuspended:
		return "suspended", awaited(data.Triggers)
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
			more += ", after " + data.Fault.Error()
		}
		return "retried", more
	case schemas.EventRolloutFinished:
		switch {
		case data.Fault != nil:
			more = data.Fault.Error()
		case data.Score != nil:
			more = "score " + formatScore(data.Score)
		}
		return string(data.State), more
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
