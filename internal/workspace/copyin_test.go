package workspace

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// tree makes files below a folder; one whose content begins with "->" is a link.
func tree(t *testing.T, dir string, files map[string]string) string {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if to, ok := strings.CutPrefix(text, "->"); err == nil && ok {
			err = os.Symlink(to, path)
		} else if err == nil {
			err = os.WriteFile(path, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// contents are the files below a folder, links as they are.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if to, err := os.Readlink(path); err == nil {
			out[rel] = "->" + to
			return nil
		}
		data, err := os.ReadFile(path)
		out[rel] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestCopyInFollowsNoLinkThatAnAgentHasLeft(t *testing.T) {
	outside := tree(t, t.TempDir(), map[string]string{"x": "untouched"})
	target := tree(t, t.TempDir(), map[string]string{"data": "->" + outside, "file/inner": "a folder", "link": "->" + filepath.Join(outside, "x"), "mine": "kept"})
	source := tree(t, t.TempDir(), map[string]string{"data/x": "new", "file": "new", "link": "new", "own": "->elsewhere"})
	if err := CopyIn(source, target, ""); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"data/x": "new", "file": "new", "link": "new", "mine": "kept", "own": "->elsewhere"}
	if diff := cmp.Diff(want, contents(t, target)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]string{"x": "untouched"}, contents(t, outside)); diff != "" {
		t.Error(diff)
	}

	// A source that is a link is what it leads to.
	linked := filepath.Join(t.TempDir(), "linked")
	if err := os.Symlink(source, linked); err != nil {
		t.Fatal(err)
	}
	again := t.TempDir()
	if err := CopyIn(linked, again, ""); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(contents(t, source), contents(t, again)); diff != "" {
		t.Error(diff)
	}
}

// A link on the way to where something is put does not lead out either.
func TestCopyInDoesNotLeaveTheFolder(t *testing.T) {
	outside := tree(t, t.TempDir(), map[string]string{"victim": "untouched"})
	target := tree(t, t.TempDir(), map[string]string{"a/link": "->" + outside, "a/inner/x": "x", "a/near": "->inner"})
	source := filepath.Join(tree(t, t.TempDir(), map[string]string{"f": "new"}), "f")
	for _, rel := range []string{"a/link/victim", "a/link/new/f", "../f", "a/link/../f"} {
		if err := CopyIn(source, target, rel); err == nil {
			t.Errorf("%s was put there", rel)
		}
	}
	if err := CopyIn(source, target, "a/near/f"); err != nil { // a link that stays within
		t.Error(err)
	}
	if diff := cmp.Diff(map[string]string{"victim": "untouched"}, contents(t, outside)); diff != "" {
		t.Error(diff)
	}
	if data, err := os.ReadFile(filepath.Join(target, "a/inner/f")); err != nil || string(data) != "new" {
		t.Errorf("%q, %v", data, err)
	}
}
