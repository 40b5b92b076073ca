package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

func TestSyncerServesEveryCaller(t *testing.T) {
	dir := t.TempDir()
	s := &Syncer{Dir: dir}
	var callers sync.WaitGroup
	for i := range 200 {
		callers.Go(func() {
			path := filepath.Join(dir, fmt.Sprint(i))
			if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
				t.Error(err)
			}
			if err := s.Sync(path, dir); err != nil {
				t.Error(err)
			}
		})
	}
	callers.Wait()
	if s.busy || len(s.waiting) != 0 {
		t.Errorf("busy %v, %d still wait", s.busy, len(s.waiting))
	}
}

func TestSyncerTellsWhatIsMissing(t *testing.T) {
	s := &Syncer{Dir: t.TempDir()}
	if err := s.Sync(filepath.Join(s.Dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if err := s.Sync(s.Dir); err != nil {
		t.Errorf("after an error: %v", err)
	}
}
