package workspace

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCopyOutTakesFilesOnly(t *testing.T) {
	outside := tree(t, t.TempDir(), map[string]string{"secret": "s"})
	below := tree(t, t.TempDir(), map[string]string{
		"a/one": "1", "a/two.log": "2", "a/skip/three": "3", "a/out": "->" + filepath.Join(outside, "secret"), "a/up": "->../..", "out": "->" + outside, "in": "->a",
	})
	for _, c := range []struct {
		rel     string
		exclude []string
		want    map[string]string
	}{
		{"a", []string{"*.log", "skip/"}, map[string]string{"one": "1"}},
		{"a/one", nil, nil}, // a file becomes the target itself
		{"in", []string{"skip", "two.*"}, map[string]string{"one": "1"}},
		{"out", nil, map[string]string{}},
		{"out/secret", nil, map[string]string{}},
		{"a/out", nil, map[string]string{}},
		{"../" + filepath.Base(outside), nil, map[string]string{}},
		{"missing", nil, map[string]string{}},
	} {
		to := filepath.Join(t.TempDir(), "to")
		x := NewCopyOut(c.exclude, nil)
		if err := x.Copy(below, c.rel, to); err != nil {
			t.Errorf("%s: %v", c.rel, err)
		}
		if want := c.rel == "out" || c.rel == "a/out"; (len(x.Notes) > 0) != want {
			t.Errorf("%s: notes %q", c.rel, x.Notes)
		}
		if c.want == nil {
			if data, err := os.ReadFile(to); err != nil || string(data) != "1" {
				t.Errorf("%s: %q, %v", c.rel, data, err)
			}
			continue
		}
		if err := os.MkdirAll(to, 0o700); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, contents(t, to)); diff != "" {
			t.Errorf("%s: %s", c.rel, diff)
		}
	}
}

// R25: what has a name of 255 bytes is kept.
func TestCopyOutKeepsLongNames(t *testing.T) {
	long := strings.Repeat("n", 255)
	below, to := tree(t, t.TempDir(), map[string]string{"a/" + long: "1"}), filepath.Join(t.TempDir(), "to")
	x := NewCopyOut(nil, nil)
	if err := x.Copy(below, "a", to); err != nil || len(x.Notes) > 0 {
		t.Errorf("%v, notes %q", err, x.Notes)
	}
	if data, err := os.ReadFile(filepath.Join(to, long)); err != nil || string(data) != "1" {
		t.Errorf("%q, %v", data, err)
	}
}

// What cannot be kept is left out and noted, and what can be is kept: also what an agent has closed,
// which is closed again then.
func TestCopyOutLeavesOutWhatCannotBeKept(t *testing.T) {
	if !asNobody(t) {
		return
	}
	long := strings.Repeat("n", 250)
	below := tree(t, t.TempDir(), map[string]string{"a/closed/x": "x", "a/file": "1", "a/kept": "2", "b": "3", long + "/" + long: "x"})
	sparse, err := os.Create(filepath.Join(below, "a", "sparse"))
	if err := errors.Join(err, sparse.Truncate(maxExtracted+1), sparse.Close(), os.Chmod(filepath.Join(below, "a", "closed"), 0),
		os.Chmod(filepath.Join(below, "a", "file"), 0)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { Reclaim(below) })
	to := t.TempDir()
	x := NewCopyOut(nil, nil)
	if err := x.Copy(below, "a", to); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"kept": "2", "closed/x": "x", "file": "1"}, contents(t, to)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"sparse: too large: 1024 MiB are kept"}, x.Notes); diff != "" {
		t.Error(diff)
	}
	into := filepath.Join(t.TempDir(), "x")
	if err := NewCopyOut(nil, nil).Copy(below, "a/closed/x", into); err != nil {
		t.Error(err)
	}
	if data, err := os.ReadFile(into); err != nil || string(data) != "x" {
		t.Errorf("%q, %v", data, err)
	}
	for _, name := range []string{"closed", "file"} {
		if info, err := os.Lstat(filepath.Join(below, "a", name)); err != nil || info.Mode().Perm() != 0 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}

	// What does not fit beside what is there, or has too long a name there.
	for rel, to := range map[string]string{"b": filepath.Join(to, "kept", "b"), long: filepath.Join(to, strings.Repeat(long+"/", 16))} {
		x := NewCopyOut(nil, nil)
		if err := x.Copy(below, rel, to); err != nil || len(x.Notes) != 1 {
			t.Errorf("%s: %v, %q", rel, err, x.Notes)
		}
	}
}

func TestCopyOutStopsAtItsLimit(t *testing.T) {
	below, to := tree(t, t.TempDir(), map[string]string{"a": "12345", "b": "123456", "c": "12345"}), t.TempDir()
	x := NewCopyOut(nil, nil)
	x.left = 10
	if err := x.Copy(below, "", to); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(map[string]string{"a": "12345", "c": "12345"}, contents(t, to)); diff != "" {
		t.Error(diff)
	}
	if len(x.Notes) != 1 || !strings.HasPrefix(x.Notes[0], "b: too large") {
		t.Errorf("notes %q", x.Notes)
	}
	many := t.TempDir()
	for i := range maxNotes + 2 {
		x.Note(many, i)
	}
	if len(x.Notes) != maxNotes+1 {
		t.Errorf("%d notes", len(x.Notes))
	}
}
