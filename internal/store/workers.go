package store

import (
	"context"
	"slices"
	"time"
)

// Workers knows the processes that look after all runs.
type Workers interface {
	// Announce says that this process is one of them, for the next [WorkerKept]. Leave says that it is
	// none any more.
	Announce(ctx context.Context, w Worker) error
	Leave(ctx context.Context) error
	// Workers returns those that have announced themselves, by name.
	Workers(ctx context.Context) ([]Worker, error)
}

// WorkerKept is how long an announcement holds. It is made again after half of that: seldom, because each
// one is a commit, after which everybody looks whether there is something to do.
const WorkerKept = 10 * time.Minute

// Worker is a process that looks after all runs.
type Worker struct {
	// ID and SeenAt are the store's: its holder, and when it has announced itself last.
	ID string
	// Name is for people; several may have the same.
	Name string
	// Tags are what it has; Announce takes those with which the store was opened.
	Tags    []string
	Version string
	// Lacks says why it could not go on with rollouts.
	Lacks  []string
	SeenAt time.Time
}

// Unmet returns the sets of tags that rollouts which wait need and no worker has.
func Unmet(queues []Queued, workers []Worker) (sets [][]string) {
	for _, q := range queues {
		fits := func(w Worker) bool {
			return !slices.ContainsFunc(q.Tags, func(tag string) bool { return !slices.Contains(w.Tags, tag) })
		}
		if len(q.Tags) > 0 && q.Ready+q.Limited > 0 && !slices.ContainsFunc(workers, fits) {
			sets = append(sets, q.Tags)
		}
	}
	return sets
}
