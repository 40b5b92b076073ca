package postgres

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/testenv"
)

// Who operates a server is told its version, of clocks that are apart, and of leases that nobody takes over.
func TestAbout(t *testing.T) {
	u, err := url.Parse(testenv.PostgresURL(t))
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("search_path", "a"+uuid.NewString())
	u.RawQuery = q.Encode()
	s, err := Open(u.String(), store.Options{Files: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	says := func(is bool, text string) {
		t.Helper()
		if about, err := s.About(t.Context()); err != nil || strings.Contains(about, text) != is {
			t.Errorf("it says %q, %v; with %q: %v", about, err, text, is)
		}
	}
	d := s.Database.(*db)
	d.listen.stop() // it asks for the time
	says(true, "PostgreSQL 1")
	says(false, "clock")
	says(false, "lease")
	if _, err := s.CreateRun(t.Context(), store.Plan{RunID: "r", Evaluations: []store.Evaluation{{ID: "e"}},
		Rollouts: []store.PlannedRollout{{ID: uuid.NewString()}}}); err != nil {
		t.Fatal(err)
	}
	if claims, err := s.Claim(t.Context(), "r", 1); err != nil || len(claims) != 1 {
		t.Fatal(claims, err)
	}
	says(false, "lease")
	if _, err := d.read.Exec("UPDATE rollouts SET lease_until = lease_until - 120000000"); err != nil {
		t.Fatal(err)
	}
	says(true, "nobody takes over: 1")
	d.ahead.Store(int64(-time.Hour))
	says(true, "a clock that is -1h0m0s ahead of this machine's")
}
