package wait

import "context"

// Begun is embedded in sources that start nothing: the key of a job is known from the start.
type Begun struct{}

// StartKind implements Source.
func (Begun) StartKind() Start { return Idempotent }

// Start implements Source.
func (Begun) Start(_ context.Context, j Job) (string, error) { return j.OwnKey(), nil }

// Find implements Source.
func (Begun) Find(_ context.Context, j Job) (string, bool, error) { return j.OwnKey(), true, nil }
