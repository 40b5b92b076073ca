package sqlite

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/evalrun/evalrun/internal/store"
)

// asAnybody has the rest of a test run as a user whom modes concern.
func asAnybody(t *testing.T, dir string) {
	t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	const nobody = 65534
	if err := errors.Join(os.Chmod(filepath.Dir(dir), 0o711), os.Chown(dir, nobody, -1), syscall.Seteuid(nobody)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Seteuid(0); err != nil {
			t.Fatal(err)
		}
	})
}

// R25: a store that cannot be written is read, also what is only in its log; whatever would change it
// is refused with the reason, and nothing is left beside it or among the temporary files.
func TestAStoreThatCannotBeWrittenIsRead(t *testing.T) {
	for name, inLog := range map[string]bool{"closed": false, "with a log that a process has left": true} {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			asAnybody(t, base)
			temporary, dir := filepath.Join(base, "tmp"), filepath.Join(base, "store")
			if err := os.Mkdir(temporary, 0o700); err != nil {
				t.Fatal(err)
			}
			t.Setenv("TMPDIR", temporary)
			s := openInternal(t, filepath.Join(base, "made"))
			if _, err := s.CreateRun(t.Context(), planOf("one")); err != nil {
				t.Fatal(err)
			}
			if inLog { // as a copy of what a killed process leaves
				if err := os.CopyFS(dir, os.DirFS(filepath.Join(base, "made"))); err != nil {
					t.Fatal(err)
				}
				if err := os.Remove(filepath.Join(dir, "store.db-shm")); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if !inLog {
				dir = filepath.Join(base, "made")
			}
			before := modes(t, dir, 0o555)
			t.Cleanup(func() { modes(t, dir, 0o755) })

			r, err := Open(dir, store.Options{MustExist: true})
			if err != nil {
				t.Fatal(err)
			}
			runs, err := r.Runs(t.Context())
			if err != nil || len(runs) != 1 || r.ID() != s.ID() || r.InPlace() != nil {
				t.Errorf("%d runs, %v, the id %s of %s, %v", len(runs), err, r.ID(), s.ID(), r.InPlace())
			}
			_, err = r.CreateRun(t.Context(), planOf("two"))
			if err == nil || !store.IsBroken(err) || !strings.Contains(err.Error(), filepath.Join(dir, "store.db")+" cannot be written") {
				t.Errorf("another run: %v", err)
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
			if after := modes(t, dir, 0o555); strings.Join(after, " ") != strings.Join(before, " ") {
				t.Errorf("%q became %q", before, after)
			}
			if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
				t.Errorf("%v is left, %v", left, err)
			}
		})
	}
}

// modes gives everything in a folder those bits of a mode that concern it, and returns the names.
func modes(t *testing.T, dir string, mode fs.FileMode) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		names = append(names, path)
		if !e.IsDir() {
			return os.Chmod(path, mode&^0o111)
		}
		return os.Chmod(path, mode)
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
