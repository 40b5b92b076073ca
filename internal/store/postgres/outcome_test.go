package postgres

import (
	"fmt"
	"net/url"
	"testing"

	"github.com/google/uuid"

	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/rules"
	"github.com/evalrun/evalrun/internal/testenv"
)

// The answer to a commit is lost, and the server has crashed: it may have lost the transaction, and
// given its number to another one.
func TestWhatHasBecomeOfATransaction(t *testing.T) {
	u, err := url.Parse(testenv.PostgresURL(t))
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("search_path", "o"+uuid.NewString())
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
	d := s.Database.(*db)
	transaction := func() (id, token string) {
		if err := s.Write(t.Context(), "write", func(tx *rules.Tx) error {
			return tx.Row([]any{&id}, "SELECT CAST(pg_current_xact_id() AS TEXT)")
		}); err != nil {
			t.Fatal(err)
		}
		if err := d.read.QueryRow("SELECT token FROM commits WHERE holder = ?", d.sender).Scan(&token); err != nil {
			t.Fatal(err)
		}
		return id, token
	}
	id, token := transaction()
	aborted := ""
	if err := s.Write(t.Context(), "fail", func(tx *rules.Tx) error {
		if err := tx.Row([]any{&aborted}, "SELECT CAST(pg_current_xact_id() AS TEXT)"); err != nil {
			return err
		}
		return fmt.Errorf("no: %w", store.ErrNotFound)
	}); err == nil {
		t.Fatal("it was committed")
	}
	for _, c := range []struct {
		name, id, token string
		want            bool
	}{
		{"it was committed", id, token, true},
		{"it was not", aborted, "of the other", false},
		{"somebody else has its number", id, "of the other", false},
		{"its number was not yet given again", "1" + id, "of the other", false},
	} {
		if got, err := d.outcome(t.Context(), c.id, c.token); err != nil || got != c.want {
			t.Errorf("%s: %v, %v", c.name, got, err)
		}
	}
}
