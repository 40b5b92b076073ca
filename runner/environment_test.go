package runner

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/sandbox"
	"github.com/evalrun/evalrun/tasks"
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

func TestPutIntoFollowsNoLinkThatAnAgentHasLeft(t *testing.T) {
	outside := tree(t, t.TempDir(), map[string]string{"x": "untouched"})
	target := tree(t, t.TempDir(), map[string]string{"data": "->" + outside, "file/inner": "a folder", "link": "->" + filepath.Join(outside, "x"), "mine": "kept"})
	source := tree(t, t.TempDir(), map[string]string{"data/x": "new", "file": "new", "link": "new", "own": "->elsewhere"})
	if err := putInto(source, target, ""); err != nil {
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
	if err := putInto(linked, again, ""); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(contents(t, source), contents(t, again)); diff != "" {
		t.Error(diff)
	}
}

// A link on the way to where something is put does not lead out either.
func TestPutIntoDoesNotLeaveTheFolder(t *testing.T) {
	outside := tree(t, t.TempDir(), map[string]string{"victim": "untouched"})
	target := tree(t, t.TempDir(), map[string]string{"a/link": "->" + outside, "a/inner/x": "x", "a/near": "->inner"})
	source := filepath.Join(tree(t, t.TempDir(), map[string]string{"f": "new"}), "f")
	for _, rel := range []string{"a/link/victim", "a/link/new/f", "../f", "a/link/../f"} {
		if err := putInto(source, target, rel); err == nil {
			t.Errorf("%s was put there", rel)
		}
	}
	if err := putInto(source, target, "a/near/f"); err != nil { // a link that stays within
		t.Error(err)
	}
	if diff := cmp.Diff(map[string]string{"victim": "untouched"}, contents(t, outside)); diff != "" {
		t.Error(diff)
	}
	if data, err := os.ReadFile(filepath.Join(target, "a/inner/f")); err != nil || string(data) != "new" {
		t.Errorf("%q, %v", data, err)
	}
}

// What an agent has taken our rights to can be removed all the same.
func TestReclaim(t *testing.T) {
	dir := tree(t, t.TempDir(), map[string]string{"x/y/f": "f", "x/link": "->/etc"})
	inner := filepath.Join(dir, "x", "y")
	for _, path := range []string{filepath.Join(inner, "f"), inner, filepath.Join(dir, "x")} {
		if err := os.Chmod(path, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := reclaim(dir); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]os.FileMode{inner: 0o700 | os.ModeDir, filepath.Join(inner, "f"): 0o600} {
		if info, err := os.Lstat(path); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v; want %v", path, info.Mode(), err, want)
		}
	}
	if err := reclaim(filepath.Join(dir, "missing")); err != nil {
		t.Error(err)
	}
}

// What a Dockerfile copies into a folder of the system lies beside what is there, and covers nothing.
func TestFilesOutsideOfTheWorkingDirectoryCoverNothing(t *testing.T) {
	e := &environment{root: t.TempDir(), isolation: sandbox.IsolationBwrap, task: &tasks.Task{}}
	e.task.Config.Environment.Workdir = "/srv/app"
	for _, inside := range []string{"/usr/bin/mine", "/opt/evalrun-none/a", "/opt/evalrun-none/b", "/srv/data/x", "/srv/app/y", "/logs/z", "/home/agent/.rc", "/etc/hostname"} {
		below, rel := e.place(inside)
		tree(t, below, map[string]string{rel: inside})
	}
	if err := errors.Join(os.MkdirAll(e.dir(folderFiles), 0o755), os.MkdirAll(e.dir(folderHome), 0o755)); err != nil {
		t.Fatal(err)
	}
	space, err := e.space(tasks.Network{}, "")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, b := range space.Binds {
		rel, err := filepath.Rel(e.root, b.Host)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, b.Inside+" "+rel)
	}
	slices.Sort(got)
	want := []string{
		"/etc/hostname files/etc/hostname", "/logs logs", "/opt/evalrun-none files/opt/evalrun-none", "/srv files/srv", "/srv/app workspace", "/usr/bin/mine files/usr/bin/mine",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if _, err := os.Stat(filepath.Join(e.dir(folderHome), ".rc")); err != nil {
		t.Error(err)
	}
}

func TestExtractTakesFilesOnly(t *testing.T) {
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
		if err := extract(below, c.rel, to, c.exclude, nil); err != nil {
			t.Errorf("%s: %v", c.rel, err)
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

// What is too much is the agent's fault, and does not end evalrun.
func TestExtractionStopsAtItsLimit(t *testing.T) {
	below, to := tree(t, t.TempDir(), map[string]string{"a": "12345", "b": "123456"}), t.TempDir()
	root, err := os.OpenRoot(below)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = root.Close() }() // only read
	x := &extraction{left: 10}
	if err := x.file(root, "a", filepath.Join(to, "a")); err != nil {
		t.Error(err)
	}
	var fault *agent.Fault
	if err := x.file(root, "b", filepath.Join(to, "b")); !errors.As(err, &fault) || fault.Category != agent.FaultVerifier {
		t.Errorf("got %v", err)
	}
	if diff := cmp.Diff(map[string]string{"a": "12345"}, contents(t, to)); diff != "" {
		t.Error(diff)
	}
}
