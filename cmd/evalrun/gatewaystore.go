package main

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"

	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/backend"
	"github.com/evalrun/evalrun/internal/store/rules"
	"github.com/evalrun/evalrun/internal/workspace"
	"github.com/evalrun/evalrun/runner"
)

// openGatewayStore opens the store in which the gateway keeps tasks and sessions. It makes the
// store if there is none.
func openGatewayStore(dir string) (*rules.Store, error) {
	dir = cmp.Or(dir, runner.DefaultDir)
	if err := backend.Check(dir); err != nil {
		return nil, usageError("%w", err)
	}
	lease, err := leaseForTests()
	if err != nil {
		return nil, err
	}
	st, err := backend.Open(dir, store.Options{Lease: lease, Files: filepath.Join(workspace.StateDir(), "stores"), Warn: func(what string) {
		printf(os.Stderr, "evalrun: %s\n", redact.Line(what))
	}})
	if errors.Is(err, store.ErrUnusable) {
		return nil, usageError("%w", err)
	}
	return st, internal(err)
}
