// Package doctor finds out what this machine can do for evalrun: where rollouts can run, what builds
// images, which agents are installed, which keys are set, whether a store can be kept. Of each lack it
// says what it means and which command mends it. It knows nothing of runs, and changes nothing.
package doctor

import (
	"context"
	"slices"
	"sync"
)

// Status is what a check has found.
type Status string

const (
	// OK says that it is there and works.
	OK Status = "ok"
	// Missing says that it is not there. Who does not use it lacks nothing.
	Missing Status = "missing"
	// Broken says that it does not work, and that it should.
	Broken Status = "broken"
)

// Finding is what one check has found. No value of a variable is ever part of it.
type Finding struct {
	// Name is that of the check, such as "bwrap" or "agent claude".
	Name   string `json:"name"`
	Status Status `json:"status"`
	// Found is what is there, such as a version, or why it is not.
	Found string `json:"found"`
	// Means is what cannot be done without it, and Mend what to do about that. Both are empty if the
	// status is OK.
	Means string `json:"means,omitempty"`
	Mend  string `json:"mend,omitempty"`
}

// check is one thing to look at. look returns what is there; its error says why it is not.
type check struct {
	name  string
	means string
	mend  string
	// needed says that it should work on every machine.
	needed bool
	look   func(context.Context) (found string, err error)
}

// Options say what is examined.
type Options struct {
	// Store is the folder of the store, which need not be there.
	Store string
	// Open opens that store, and says what it holds.
	Open func() (found string, err error)
	// Files keeps a file as a suspension does, gets it back, and says where; nil if there is no store.
	Files func(context.Context) (place string, err error)
	// Isolation says in what tasks with images run here if nobody chooses, and why.
	Isolation func(context.Context) (found string, err error)
	// Workers says which processes look after all runs of that store. Its error says what waits for one
	// that there is not.
	Workers func(context.Context) (found string, err error)
	// Built is the time of this program's commit, as RFC 3339 has it; empty if it is not known.
	Built string
}

// atOnce is how many checks run at a time. Some start programs that take a second.
const atOnce = 4

// Examine makes the checks with these names, or all. The findings are in the order of the list.
func Examine(ctx context.Context, o Options, names ...string) []Finding {
	checks := o.checks()
	if len(names) > 0 {
		checks = slices.DeleteFunc(checks, func(c check) bool { return !slices.Contains(names, c.name) })
	}
	findings := make([]Finding, len(checks))
	var running sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for i, c := range checks {
		slots <- struct{}{}
		running.Go(func() {
			findings[i] = c.finding(ctx)
			<-slots
		})
	}
	running.Wait()
	return findings
}

// Names lists the checks.
func (o Options) Names() (names []string) {
	for _, c := range o.checks() {
		names = append(names, c.name)
	}
	return names
}

func (c check) finding(ctx context.Context) Finding {
	found, err := c.look(ctx)
	if err == nil {
		return Finding{Name: c.name, Status: OK, Found: found}
	}
	f := Finding{Name: c.name, Status: Missing, Found: err.Error(), Means: c.means, Mend: c.mend}
	if c.needed {
		f.Status = Broken
	}
	return f
}
