package workspace

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestCopyTree(t *testing.T) {
	dir := t.TempDir()
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(filepath.Join(from, "a", "empty"), 0o750))
	must(os.WriteFile(filepath.Join(from, "a", "tool"), []byte("#!/bin/sh\n"), 0o755))
	must(os.Symlink("../outside", filepath.Join(from, "a", "link")))
	old := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	must(os.Chtimes(filepath.Join(from, "a", "tool"), old, old))
	must(os.MkdirAll(to+".tmp", 0o700)) // of a copy that was never finished
	must(copyTree(from, to))

	info, err := os.Stat(filepath.Join(to, "a", "tool"))
	must(err)
	if info.Mode().Perm() != 0o755 || !info.ModTime().Equal(old) {
		t.Errorf("the tool has mode %v and time %v", info.Mode(), info.ModTime())
	}
	if target, err := os.Readlink(filepath.Join(to, "a", "link")); err != nil || target != "../outside" {
		t.Errorf("the link points to %q, %v", target, err)
	}
	if _, err := os.Stat(filepath.Join(to, "a", "empty")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(to + ".tmp"); err == nil {
		t.Error("the unfinished copy is still there")
	}
}

// A copy of a file that has only a size takes no room either.
func TestCopyKeepsHoles(t *testing.T) {
	dir := t.TempDir()
	in, err := os.Create(filepath.Join(dir, "in"))
	if err == nil {
		_, err = in.WriteAt([]byte("far out"), 1<<34)
	}
	if err := errors.Join(err, in.Truncate(1<<35), in.Close()); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := copyEntry(in.Name(), filepath.Join(dir, "out"), entries[0]); err != nil {
		t.Fatal(err)
	}
	var stat unix.Stat_t
	if err := unix.Stat(filepath.Join(dir, "out"), &stat); err != nil || stat.Size != 1<<35 || stat.Blocks*512 > 1<<20 {
		t.Errorf("%d bytes in %d blocks, %v", stat.Size, stat.Blocks, err)
	}
	out, err := os.Open(filepath.Join(dir, "out"))
	got := make([]byte, 7)
	if err == nil {
		_, err = out.ReadAt(got, 1<<34)
	}
	if err := errors.Join(err, out.Close()); err != nil || string(got) != "far out" {
		t.Errorf("%q, %v", got, err)
	}
}
