package workspace

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestUsage(t *testing.T) {
	dir := t.TempDir()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	usage := func() int64 {
		t.Helper()
		n, err := Usage(dir, filepath.Join(dir, "missing"))
		check(err)
		return n
	}
	sub := filepath.Join(dir, "a", "b")
	check(os.MkdirAll(sub, 0o700))
	empty := usage()
	check(os.WriteFile(filepath.Join(sub, "file"), make([]byte, 1<<20), 0o600))
	check(os.Link(filepath.Join(sub, "file"), filepath.Join(dir, "again")))
	check(os.Symlink("/usr", filepath.Join(dir, "usr")))
	hole, err := os.Create(filepath.Join(dir, "hole"))
	check(errors.Join(err, hole.Truncate(1<<40), hole.Close()))
	if n := usage() - empty; n < 1<<20 || n > 1<<20+64<<10 {
		t.Errorf("a file of 1 MiB with two names, a link and a hole take %d bytes", n)
	}
	// Nobody hides anything by nesting.
	deep, err := os.OpenRoot(sub)
	check(err)
	for range deepest {
		check(deep.Mkdir("d", 0o700))
		next, err := deep.OpenRoot("d")
		check(errors.Join(err, deep.Close()))
		deep = next
	}
	check(deep.Close())
	if _, err := Usage(dir); !errors.Is(err, ErrTooDeep) {
		t.Errorf("%d folders deep: %v", deepest, err)
	}
}

// Nobody hides anything by closing a folder, and it stays closed.
func TestUsageOfClosedFolders(t *testing.T) {
	if !asNobody(t) {
		return
	}
	dir := t.TempDir()
	closed := filepath.Join(dir, "a", "b")
	if err := errors.Join(os.MkdirAll(closed, 0o700), os.WriteFile(filepath.Join(closed, "file"), make([]byte, 1<<20), 0), os.Chmod(closed, 0), os.Chmod(filepath.Dir(closed), 0o400)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { Reclaim(dir) })
	if n, err := Usage(dir); err != nil || n < 1<<20 {
		t.Errorf("%d bytes, %v", n, err)
	}
	if info, err := os.Lstat(filepath.Dir(closed)); err != nil || info.Mode().Perm() != 0o400 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}
