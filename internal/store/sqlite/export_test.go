package sqlite

import "github.com/evalrun/evalrun/internal/store"

// Look does now what is done every five seconds while somebody waits for a change.
func Look(s store.Store) { s.(*Store).changes.look() }
