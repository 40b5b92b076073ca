package web

import (
	"context"
	"encoding/json"
	"time"

	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/runner"
)

// waitGroup is something that several rollouts wait for.
type waitGroup struct {
	Type, Name string
	N          int
	Oldest     time.Time
	// NextCheck and Deadline are the next ones; zero if there is none.
	NextCheck, Deadline time.Time
	Answer              runner.Answer
}

// maxWaits is how many groups a page shows.
const maxWaits = 50

// addWaits adds what the run waits for.
func (o *overview) addWaits(ctx context.Context, from interface {
	Triggers(ctx context.Context, runID string, all bool, f func(runner.Trigger) error) error
}) error {
	if o.head.Final {
		return nil
	}
	at := map[[2]string]int{}
	return from.Triggers(ctx, o.head.RunID, false, func(t runner.Trigger) error {
		name := nameOfWait(t.Type, t.InterruptID, t.Payload)
		if t.Type == string(wait.TypeTask) && t.AskedBy == "" {
			o.ends.People++
		}
		if t.Type == string(wait.TypeTimer) && t.NextCheck != nil && t.NextCheck.After(o.ends.NotBefore) {
			o.ends.NotBefore = *t.NextCheck
		}
		key := [2]string{t.Type, name}
		i, ok := at[key]
		if !ok && len(o.waits) == maxWaits { // the rest together
			key, name = [2]string{}, "others"
			i, ok = at[key]
		}
		if !ok {
			i = len(o.waits)
			at[key] = i
			o.waits = append(o.waits, waitGroup{Type: t.Type, Name: name, Oldest: t.CreatedAt, Answer: t.Answer})
		}
		g := &o.waits[i]
		g.N++
		g.Oldest = earlier(g.Oldest, &t.CreatedAt)
		g.NextCheck, g.Deadline = earlier(g.NextCheck, t.NextCheck), earlier(g.Deadline, t.Deadline)
		return nil
	})
}

func earlier(a time.Time, b *time.Time) time.Time {
	if b == nil || !a.IsZero() && a.Before(*b) {
		return a
	}
	return *b
}

// nameOfWait is what is waited for: the process, the application that asks, or the interrupt.
func nameOfWait(typ, interruptID string, asked json.RawMessage) string {
	var payload struct {
		Process string `json:"process_name"`
		Name    string `json:"name"`
		App     string `json:"app_name"`
		Title   string `json:"title"`
	}
	_ = json.Unmarshal(asked, &payload) // it may be anything
	for _, name := range []string{payload.Process, payload.App, payload.Title, payload.Name} {
		if name != "" {
			return name
		}
	}
	if typ == string(wait.TypeTimer) {
		return "until a time"
	}
	return interruptID
}
