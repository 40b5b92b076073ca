// Package backend opens a store by what a user calls it, with the database that this means. Only
// code that opens a store names this package; all other code uses the interfaces of package store.
package backend

import (
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/rules"
	"github.com/evalrun/evalrun/internal/store/sqlite"
)

// Open opens the store in a folder.
func Open(place string, opts store.Options) (*rules.Store, error) {
	return sqlite.Open(place, opts)
}
