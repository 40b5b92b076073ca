package sqlite_test

import (
	"testing"

	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/sqlite"
	"github.com/evalrun/evalrun/internal/store/storetest"
)

func TestConformance(t *testing.T) {
	storetest.Run(t, func(t testing.TB, dir string, o store.Options) storetest.Store {
		t.Helper()
		s, err := sqlite.Open(dir, o)
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
}
