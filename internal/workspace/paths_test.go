package workspace

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// T30: a link is short, takes the place of one that a killed process has left, and of nothing else.
func TestLinkTo(t *testing.T) {
	marker, first, second := t.TempDir(), t.TempDir(), t.TempDir()
	path, err := LinkTo(first, marker)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(path) })
	if longest := filepath.Join(path, FolderHome, "tmp"); len(longest) > 40 {
		t.Errorf("%s has %d characters", longest, len(longest))
	}
	if _, err := LinkTo(second, marker); err != nil {
		t.Fatal(err)
	}
	if to, err := os.Readlink(path); err != nil || to != second {
		t.Errorf("it leads to %s, %v, want %s", to, err, second)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LinkTo(first, marker); err == nil || !strings.Contains(err.Error(), path+", which is to be a link") {
		t.Errorf("over a file: %v", err)
	}
}
