package web

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/runner"
)

// maxWaits is the most groups that a page shows.
const maxWaits = 50

// addWaits adds what the run waits for.
func (o *overview) addWaits(ctx context.Context, from interface {
	Triggers(ctx context.Context, runID string, all bool, f func(runner.Trigger) error) error
}) error {
	if o.head.Final {
		return nil
	}
	var waits waitGroups
	err := from.Triggers(ctx, o.head.RunID, false, func(t runner.Trigger) error {
		name := nameOfWait(t.Type, t.InterruptID, t.Payload)
		if t.Type == string(wait.TypeTask) && t.AskedBy == "" && t.Source != wait.SourceFixed {
			o.ends.People++
		}
		if t.Type == string(wait.TypeTimer) && t.NextCheck != nil && t.NextCheck.After(o.ends.NotBefore) {
			o.ends.NotBefore = *t.NextCheck
		}
		g := waits.add(t.Type, name, t.RolloutID)
		if g.Oldest.IsZero() {
			g.Answer = t.Answer
		}
		g.Oldest = earlier(g.Oldest, &t.CreatedAt)
		g.NextCheck, g.Deadline = earlier(g.NextCheck, t.NextCheck), earlier(g.Deadline, t.Deadline)
		return nil
	})
	o.waits = waits.all
	return err
}

// waitGroups collects waits in groups, in the order in which it saw them.
type waitGroups struct {
	all     []waitGroup
	at      map[[2]string]int
	counted map[waiter]bool
}

// waiter is a rollout that is counted in a group.
type waiter struct {
	group   int
	rollout string
}

// add returns the group of a type and a name, and counts the rollout in it. Groups that do not fit
// on a page become one, "others".
func (w *waitGroups) add(typ, name, rolloutID string) *waitGroup {
	key := [2]string{typ, name}
	i, ok := w.at[key]
	if !ok && len(w.all) >= maxWaits {
		typ, name, key = "", "others", [2]string{}
		i, ok = w.at[key]
	}
	if !ok {
		if w.at == nil {
			w.at, w.counted = map[[2]string]int{}, map[waiter]bool{}
		}
		i = len(w.all)
		w.at[key] = i
		w.all = append(w.all, waitGroup{Type: typ, Name: name})
	}
	if one := (waiter{i, rolloutID}); !w.counted[one] {
		w.counted[one] = true
		w.all[i].N++
	}
	return &w.all[i]
}

func earlier(a time.Time, b *time.Time) time.Time {
	if b == nil || !a.IsZero() && a.Before(*b) {
		return a
	}
	return *b
}

// kinds are the words for types of triggers on pages.
var kinds = map[string]string{
	"TASK": "question", "JOB": "job", "TIMER": "timer", "API": "call", "INBOX": "message", "QUEUE_ITEM": "queue item",
	"MCP_TASK": "MCP task", "MESH_JOB": "mesh job",
}

// kindOf returns the word for a type of triggers on pages.
func kindOf(typ string) string {
	if kind, ok := kinds[typ]; ok {
		return kind
	}
	return plain(strings.ToLower(strings.ReplaceAll(typ, "_", " ")))
}

// nameOfWait names a wait by the process, the question, the application that asks, or the
// interrupt.
func nameOfWait(typ, interruptID string, asked json.RawMessage) string {
	if names := wait.Names(asked); len(names) > 0 {
		return names[0]
	}
	if typ == string(wait.TypeTimer) {
		return "until a time"
	}
	return interruptID
}
