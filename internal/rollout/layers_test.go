package rollout

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/evalrun/evalrun/internal/workspace"
)

// Over an image every attempt of a segment begins with what the segment before has left, and so does
// a verifier that is repeated, whether the snapshot was taken before or just now.
func TestEveryAttemptBeginsWithTheSameLayers(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("overlays are Linux's")
	}
	w := newWorld(t, completes, nil)
	h := w.claim().held
	l := layers{h}
	w.check(h.load(t.Context()))
	file := filepath.Join(h.root(), workspace.FolderUpper, "opt", "file")
	w.check(os.MkdirAll(filepath.Dir(file), 0o755))
	attempt := func(name, want string) {
		t.Helper()
		w.check(l.restore(name, []string{workspace.FolderUpper}))
		got, err := os.ReadFile(file)
		w.check(err)
		if string(got) != want {
			t.Errorf("%s: an attempt begins with %q, want %q", name, got, want)
		}
		w.check(os.WriteFile(file, []byte("of an attempt"), 0o644))
		w.check(os.WriteFile(file+"-more", nil, 0o644))
	}
	w.check(os.WriteFile(file, []byte("of segment 1"), 0o644))
	for range 3 {
		attempt("segment-2", "of segment 1")
	}
	w.check(os.WriteFile(file, []byte("of segment 2"), 0o644))
	w.check(l.keep(copyOf(3), []string{workspace.FolderUpper}))
	for range 3 {
		attempt("segment-3", "of segment 2")
	}
	w.check(os.WriteFile(file, []byte("at the end"), 0o644))
	w.check(l.keep(verifierSnapshot, []string{workspace.FolderUpper}))
	for range 3 {
		attempt(verifierSnapshot, "at the end")
	}
}
