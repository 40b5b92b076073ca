package store

import (
	"context"
	"encoding/json"
	"slices"
	"time"
)

// Limits bound what runs at once, over all processes of a store, and say what the limits hold back.
type Limits interface {
	// Limits returns all limits, the one of everything first.
	Limits(ctx context.Context) ([]Limit, error)
	// SetLimits sets what the limits allow, and removes those that allow less than nothing. What runs
	// goes on, also if it is more than that.
	SetLimits(ctx context.Context, limits ...Limit) error
	// Queues says what is queued, held and held back, by the tags that it needs.
	Queues(ctx context.Context) ([]Queued, error)
}

// LimitKind is what a limit counts.
type LimitKind string

// The kinds of limits.
const (
	// LimitAll counts the agents that run.
	LimitAll LimitKind = "all"
	// LimitAgent counts those of one name.
	LimitAgent LimitKind = "agent"
	// LimitSource counts the jobs of a source that were started and have not ended.
	LimitSource LimitKind = "source"
)

// Limit is one limit.
type Limit struct {
	Kind LimitKind
	// Name is that of the agent or source; empty for all.
	Name string
	// Most is how many may run at once, Used how many do, and Waiting how many more could.
	Most, Used, Waiting int
}

// Queued is what of all runs is to be worked on by those who have some tags.
type Queued struct {
	Tags []string
	// Ready rollouts could be claimed now, and Limited ones if a limit had room. Held ones are worked
	// on. Suspended ones are none of them.
	Ready, Limited, Held int
	// Oldest is since when the first of Ready and Limited can be claimed; zero if there is none.
	Oldest time.Time
}

// TagList is a set of tags as a store keeps it: equal sets are equal texts, and the empty one is
// empty.
func TagList(tags []string) string {
	if len(tags) == 0 {
		return ""
	}
	all := slices.Clone(tags)
	slices.Sort(all)
	text, _ := json.Marshal(slices.Compact(all)) // strings are always JSON
	return string(text)
}
