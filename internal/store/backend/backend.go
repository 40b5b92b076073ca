// Package backend opens a store by what a user calls it, with the database that this means. Only
// code that opens a store names this package; all other code uses the interfaces of package store.
package backend

import (
	"strings"

	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/postgres"
	"github.com/evalrun/evalrun/internal/store/rules"
	"github.com/evalrun/evalrun/internal/store/sqlite"
)

// Open opens the store in a folder, or in the PostgreSQL database that a URL names.
func Open(place string, opts store.Options) (*rules.Store, error) {
	if postgres.IsURL(place) {
		return postgres.Open(place, opts)
	}
	return sqlite.Open(place, opts)
}

// IsFolder reports whether a store of this name is in a folder.
func IsFolder(place string) bool { return !postgres.IsURL(place) }

// Check refuses what cannot be a store.
func Check(place string) error {
	if postgres.IsURL(place) {
		return nil
	}
	return store.CheckDir(place)
}

// Name is what a user calls a store, as it may be shown.
func Name(place string) string {
	if strings.Contains(place, "://") {
		return postgres.Name(place)
	}
	return place
}
