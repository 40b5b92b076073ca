package tasks

import (
	"errors"
	"fmt"
	"time"

	"github.com/evalrun/evalrun/internal/store"
)

// Options give clients that can wait themselves tasks to wait for: those of 2025-11-25 and those of
// the extension of 2026-07-28, whatever their server speaks. Zero values mean the defaults.
type Options struct {
	// Store keeps the tasks and the clients' sessions. It is required.
	Store store.MCPTasks
	// TTL is how long a task is kept if its client does not say; 0 is 30 min. MaxTTL bounds what
	// clients may say; 0 is 2 h.
	TTL, MaxTTL time.Duration
	// Poll is how often clients are told to ask, and how often servers that do not say are asked; 0 is
	// 1 s. Cleanup is how often expired tasks and idle sessions are looked for; 0 is 1 min.
	Poll, Cleanup time.Duration
	// Page is how many tasks tasks/list returns at once; 0 is 100.
	Page int
	// Max is how many tasks there may be, MaxPerSession how many of one legacy session; 0 is 10,000
	// and 1,000.
	Max, MaxPerSession int
	// Grace is how long a modern client waits for the result of an ordinary call before it is given
	// a task instead; 0 is 1 s.
	Grace time.Duration
	// SessionIdle is how long a legacy session may be unused before it ends; 0 is 2 h, or MaxTTL if
	// that is longer.
	SessionIdle time.Duration
	// Widen lets clients call tools as tasks even if their server has no tasks and forbids them. The
	// SDK for TypeScript forbids them for every tool that says nothing.
	Widen bool
	// Strict refuses calls for which the server needs a task if they come from modern clients that
	// have not declared the extension, as the extension prescribes. Otherwise such clients wait for
	// the result, as legacy ones do.
	Strict bool
}

// The defaults and bounds of Options that are shown to people, and the others.
const (
	DefaultTaskTTL         = 30 * time.Minute
	DefaultMaxTaskTTL      = 2 * time.Hour
	DefaultMaxTasks        = 10_000
	DefaultMaxSessionTasks = 1_000
	LongestTaskTTL         = 30 * 24 * time.Hour
	MostTasks              = 1_000_000

	defaultTaskPoll    = time.Second
	defaultTaskCleanup = time.Minute
	defaultTaskPage    = 100
	defaultTaskGrace   = time.Second
	largestTaskPage    = 1_000
)

// complete fills in the defaults and checks the options.
func (o Options) complete() (Options, error) {
	if o.Store == nil {
		return o, errors.New("tasks need a store")
	}
	if o.MaxTTL == 0 {
		o.MaxTTL = DefaultMaxTaskTTL
	}
	for _, d := range []struct {
		name           string
		value          *time.Duration
		otherwise, max time.Duration
	}{
		{"longest time to live of tasks", &o.MaxTTL, 0, LongestTaskTTL},
		{"time to live of tasks", &o.TTL, min(DefaultTaskTTL, o.MaxTTL), o.MaxTTL},
		{"poll interval of tasks", &o.Poll, defaultTaskPoll, time.Hour},
		{"cleanup interval of tasks", &o.Cleanup, defaultTaskCleanup, time.Hour},
		{"grace of calls", &o.Grace, defaultTaskGrace, time.Hour},
		{"time of idle sessions", &o.SessionIdle, max(DefaultMaxTaskTTL, o.MaxTTL), 2 * LongestTaskTTL},
	} {
		if *d.value == 0 {
			*d.value = d.otherwise
		}
		if *d.value < time.Millisecond || *d.value > d.max {
			return o, fmt.Errorf("the %s is %v: expected 1ms to %v", d.name, *d.value, d.max)
		}
	}
	if o.Max == 0 {
		o.Max = DefaultMaxTasks
	}
	for _, n := range []struct {
		name           string
		value          *int
		otherwise, max int
	}{
		{"number of tasks", &o.Max, DefaultMaxTasks, MostTasks},
		{"number of tasks of a session", &o.MaxPerSession, min(DefaultMaxSessionTasks, o.Max), o.Max},
		{"number of tasks of a page", &o.Page, defaultTaskPage, largestTaskPage},
	} {
		if *n.value == 0 {
			*n.value = n.otherwise
		}
		if *n.value < 1 || *n.value > n.max {
			return o, fmt.Errorf("the greatest %s is %d: expected 1 to %d", n.name, *n.value, n.max)
		}
	}
	return o, nil
}
