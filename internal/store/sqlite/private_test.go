package sqlite

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/evalrun/evalrun/internal/store"
)

// S4: what is in a store is for its owner only, also in a folder that was there, and also if it was
// otherwise before.
func TestAStoreIsPrivate(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	check := func(when string) {
		t.Helper()
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || path == dir || d.Type()&fs.ModeSocket != 0 {
				return err
			}
			info, err := d.Info()
			if err == nil && info.Mode()&0o077 != 0 {
				t.Errorf("%s: %s is %v", when, path, info.Mode())
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	open := func() *Store {
		t.Helper()
		s, err := Open(dir, store.Options{Warn: func(what string) { t.Error(what) }})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := open()
	for _, name := range []string{"store.db", "store.db-wal", "store.db-shm"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	check("made")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	// Given a store of an earlier evalrun, which is open.
	s = open()
	for _, name := range []string{"store.db", "store.db-wal", "store.db-shm"} {
		if err := os.Chmod(filepath.Join(dir, name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "runs"), 0o755); err != nil {
		t.Fatal(err)
	}
	second := open()
	check("mended")
	for _, s := range []*Store{second, s} {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
