package rollout

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestSocketFolderTakesThePlaceOfOneThatWasLeft(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	left, err := socketFolder("one")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(left, "mcp.sock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	other, err := socketFolder("other")
	if err != nil {
		t.Fatal(err)
	}
	again, err := socketFolder("one")
	if err != nil {
		t.Fatal(err)
	}
	found, err := filepath.Glob(filepath.Join(os.TempDir(), "*"))
	if want := []string{again, other}; err != nil || len(found) != 2 || !slices.Contains(want, found[0]) || !slices.Contains(want, found[1]) {
		t.Errorf("there are %v, want %v", found, want)
	}
}
