package store

import "context"

// Heads reads what is known of a run as a whole.
type Heads interface {
	// RunHead returns a run without its Counts. It costs the same however many rollouts there are.
	RunHead(ctx context.Context, runID string) (Run, error)
}
