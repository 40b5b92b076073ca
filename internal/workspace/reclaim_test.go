package workspace

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// asNobody runs the test again as a user without privileges, and reports whether this is that user.
// What follows is of no meaning as root, who may read and change everything.
func asNobody(t *testing.T) bool {
	t.Helper()
	if os.Geteuid() != 0 {
		return true
	}
	dir, err := os.MkdirTemp("", "evalrun-nobody-") // not below TempDir, which is root's
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	program := filepath.Join(dir, "test")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(self)
	if err := errors.Join(err, os.WriteFile(program, data, 0o755), os.Chmod(dir, 0o777)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "TMPDIR="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("as nobody: %v\n%s", err, out)
	}
	return false
}

// What an agent has taken our rights to can be read and removed all the same, and nothing else is
// changed.
func TestReclaim(t *testing.T) {
	if !asNobody(t) {
		return
	}
	dir := tree(t, t.TempDir(), map[string]string{"x/y/f": "f", "x/y/mine": "mine", "x/link": "->/etc"})
	inner := filepath.Join(dir, "x", "y")
	for _, c := range []struct {
		path string
		mode os.FileMode
	}{{filepath.Join(inner, "mine"), 0o444}, {filepath.Join(inner, "f"), 0}, {inner, 0}, {filepath.Join(dir, "x"), 0}} {
		if err := os.Chmod(c.path, c.mode); err != nil {
			t.Fatal(err)
		}
	}
	Reclaim(dir)
	for path, want := range map[string]os.FileMode{inner: 0o700 | os.ModeDir, filepath.Join(inner, "f"): 0o600, filepath.Join(inner, "mine"): 0o444} {
		if info, err := os.Lstat(path); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v; want %v", path, info.Mode(), err, want)
		}
	}
	Reclaim(filepath.Join(dir, "missing"))
}

// Folders that an agent has closed, removed or replaced are ours again, and can be made durable
// and copied.
func TestTakeBack(t *testing.T) {
	if !asNobody(t) {
		return
	}
	root, outside := t.TempDir(), tree(t, t.TempDir(), map[string]string{"x": "untouched"})
	tree(t, root, map[string]string{"closed/d/e/f": "f", "file": "a file in the place of a folder", "link": "->" + outside})
	for _, dir := range []string{"closed/d/e", "closed/d", "closed"} {
		if err := os.Chmod(filepath.Join(root, dir), 0); err != nil {
			t.Fatal(err)
		}
	}
	folders := []string{"closed", "file", "link", "gone"}
	if err := TakeBack(root, folders); err != nil {
		t.Fatal(err)
	}
	for _, name := range folders {
		if err := syncTree(filepath.Join(root, name)); err != nil {
			t.Error(err)
		}
	}
	if err := Snapshot(root, filepath.Join(root, "copy"), folders); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(map[string]string{"closed/d/e/f": "f"}, contents(t, filepath.Join(root, "copy"))); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]string{"x": "untouched"}, contents(t, outside)); diff != "" {
		t.Error(diff)
	}
}

// What an agent has closed is no obstacle to an attempt that begins again.
func TestMakeEmptyOfClosedFolders(t *testing.T) {
	if !asNobody(t) {
		return
	}
	dir := filepath.Join(t.TempDir(), "dir")
	tree(t, dir, map[string]string{"read/only/f": "f", "closed/f": "f"})
	for name, mode := range map[string]os.FileMode{"read/only": 0o555, "read": 0o555, "closed": 0} {
		if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := MakeEmpty(dir); err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("%v, %v", entries, err)
	}
}
