package runner

import (
	"database/sql"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/durable"
	"github.com/evalrun/evalrun/internal/pack"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/testenv"
)

// X1: the ids in a pack lead nowhere, and nothing else than its runs comes along.
func TestHostileStoresAreNotUnpacked(t *testing.T) {
	testenv.NeedSlow(t)
	for name, c := range map[string]struct{ change, also, want string }{
		"a store id that is a path":   {"UPDATE meta SET value = '../../stolen' WHERE key = 'storeId'", "", "is no name"},
		"a run id that is a path":     {"UPDATE runs SET run_id = '../r'", "", "is no name"},
		"a rollout id that is a path": {"UPDATE rollouts SET rollout_id = '..'", "", "is no name"},
		"a file beside the runs":      {"", "serve.yaml", "belongs to none of its runs"},
		"a block of another content":  {"INSERT INTO blocks (sum, data, asked_at) VALUES ('" + strings.Repeat("ab", 32) + "', x'28b52ffd0400090000616263cd6d22d1', 1)", "", "block " + strings.Repeat("ab", 32) + " is damaged"},
		"a block that is elsewhere":   {"INSERT INTO blocks (sum, data, asked_at, object, stored) VALUES ('" + strings.Repeat("ab", 32) + "', x'', 1, 's3://other/store/object', 16)", "", "says of 1 that they are elsewhere"},
	} {
		t.Run(name, func(t *testing.T) {
			home := t.TempDir()
			t.Setenv("XDG_STATE_HOME", filepath.Join(home, "state"))
			file, database := filepath.Join(home, "run.tar.zst"), filepath.Join(home, "from", databaseFile)
			rollout := store.RolloutID("r", "e", "a", 1)
			s, err := Open(filepath.Dir(database), OpenOptions{})
			if err != nil {
				t.Fatal(err)
			}
			_, err = s.st.CreateRun(t.Context(), store.Plan{RunID: "r", Name: "r", EvaluationSetID: "set", EvaluationSetName: "Set", Data: []byte(`{}`),
				Evaluations: []store.Evaluation{{ID: "e", Data: []byte(`{}`)}}, Rollouts: []store.PlannedRollout{{ID: rollout, EvaluationName: "E", Agent: "a", Epoch: 1}}})
			if err := errors.Join(err, s.Close()); err != nil {
				t.Fatal(err)
			}
			db, err := sql.Open("sqlite", database)
			if err != nil {
				t.Fatal(err)
			}
			_, err = db.ExecContext(t.Context(), c.change)
			if err := errors.Join(err, db.Close(), os.Mkdir(filepath.Join(home, "kept"), 0o700)); err != nil {
				t.Fatal(err)
			}
			err = durable.WriteFile(file, 0o600, func(w io.Writer) error {
				p, err := pack.NewWriter(w, pack.Manifest{})
				if err == nil {
					err = errors.Join(p.Tree(databaseFile, database), p.Tree(outsideFolder+"/"+rollout, filepath.Join(home, "kept")))
				}
				if err == nil && c.also != "" {
					err = p.Tree(c.also, database)
				}
				return errors.Join(err, p.Close())
			})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := Unpack(t.Context(), filepath.Join(home, "to", "a", "store"), file, Key{}, OpenOptions{}); !errors.As(err, new(*InputError)) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, expected %q", err, c.want)
			}
			for _, path := range []string{"to", "stolen", "state"} {
				if _, err := os.Lstat(filepath.Join(home, path)); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("%s is there (%v)", path, err)
				}
			}
		})
	}
}

// X1: writing a pack replaces nothing, and leaves nothing beside it.
func TestPackReplacesNothing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "run")
	text := func(text string) func(io.Writer) error {
		return func(w io.Writer) error { _, err := io.WriteString(w, text); return err }
	}
	if err := errors.Join(os.WriteFile(file+".tmp", []byte("mine"), 0o600), writeNew(file, text("one"))); err != nil {
		t.Fatal(err)
	}
	if err := writeNew(file, text("two")); !errors.As(err, new(*InputError)) {
		t.Errorf("a second one: %v", err)
	}
	for path, want := range map[string]string{file: "one", file + ".tmp": "mine"} {
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}
	if all, err := filepath.Glob(file + "*"); err != nil || len(all) != 2 {
		t.Errorf("%q, %v", all, err)
	}
}
