package sqlite

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/storetest"
)

// Blocks outside of the database are like those in it.
func TestBlocksInAFolder(t *testing.T) {
	storetest.RunBlocks(t, func(t testing.TB, dir string, o store.Options) storetest.Store {
		t.Helper()
		o.Blobs = "file://" + dir
		s, err := Open(filepath.Join(dir, "store"), o)
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
}

// Given blocks in a folder, when one is cut or gone, then it is missing; when nothing needs them they are removed, and
// so is what no row knows; and files of others in the folder stay.
func TestObjectsOfAFolder(t *testing.T) {
	dir := t.TempDir()
	s := openWith(t, filepath.Join(dir, "store"), store.Options{Blobs: "file://" + dir + "/blobs/"})
	put := func(name string) error {
		return s.PutBlocks(t.Context(), []store.Block{{Sum: name, Data: []byte(name)}, {Sum: name + name, Data: []byte("more " + name)}})
	}
	if err := put("a"); err == nil || !strings.Contains(err.Error(), "make it, or mount it") {
		t.Errorf("there is no folder: %v", err)
	}
	other := filepath.Join(dir, "blobs", "another-store", "object")
	if err := errors.Join(os.MkdirAll(filepath.Dir(other), 0o700), os.WriteFile(other, nil, 0o600), put("a"), put("b")); err != nil {
		t.Fatal(err)
	}
	found, err := filepath.Glob(filepath.Join(dir, "blobs", s.ID(), "*"))
	if err != nil || len(found) != 2 {
		t.Fatalf("%q, %v", found, err)
	}
	orphan := filepath.Join(filepath.Dir(found[0]), "orphan")
	if err := errors.Join(os.Remove(found[0]), os.Truncate(found[1], 3), os.WriteFile(orphan, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	var got []string
	if err := s.Blocks(t.Context(), []string{"a", "aa", "b", "bb"}, func(b store.Block) error {
		got = append(got, b.Sum)
		return nil
	}); err != nil || len(got) != 1 {
		t.Errorf("%q, %v: expected the first of what was cut", got, err)
	}
	away := filepath.Join(dir, "away")
	if err := os.Rename(filepath.Join(dir, "blobs"), away); err != nil {
		t.Fatal(err)
	}
	if err := s.Blocks(t.Context(), []string{"b"}, nil); !store.IsBroken(err) || !strings.Contains(err.Error(), "mount it") {
		t.Errorf("without the folder: %v; expected that nothing is missing, and the store does not work", err)
	}
	if err := os.Rename(away, filepath.Join(dir, "blobs")); err != nil {
		t.Fatal(err)
	}
	if n, err := s.PruneBlocks(t.Context(), 24*time.Hour); err != nil || n != 0 {
		t.Errorf("%d removed, %v", n, err)
	}
	if n, err := s.PruneBlocks(t.Context(), -time.Minute); err != nil || n != 4 {
		t.Errorf("%d removed, %v", n, err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "blobs", "*", "*"))
	if err != nil || len(left) != 1 || left[0] != other {
		t.Errorf("left: %q, %v", left, err)
	}
	if name, err := s.CheckBlobs(t.Context()); err != nil || name != "file://"+dir+"/blobs" {
		t.Errorf("%s, %v", name, err)
	}
}
