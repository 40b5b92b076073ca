package postgres_test

import (
	"crypto/sha256"
	"fmt"
	"net/url"
	"testing"

	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/postgres"
	"github.com/evalrun/evalrun/internal/store/storetest"
	"github.com/evalrun/evalrun/internal/testenv"
)

// at is the URL of a store for a folder: two with the same folder are the same store.
func at(t testing.TB, dir string) string {
	t.Helper()
	u, err := url.Parse(testenv.PostgresURL(t))
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("search_path", fmt.Sprintf("t%x", sha256.Sum256([]byte(dir)))[:20])
	u.RawQuery = q.Encode()
	return u.String()
}

func TestConformance(t *testing.T) {
	testenv.PostgresURL(t)
	storetest.Run(t, func(t testing.TB, dir string, o store.Options) storetest.Store {
		t.Helper()
		o.Files = dir
		s, err := postgres.Open(at(t, dir), o)
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
}
