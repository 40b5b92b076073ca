package engine

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/internal/sandbox"
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

// asNobody runs the test again as a user without privileges, and reports whether this is that user. What follows is of no meaning as root, who may
// read and change everything.
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

// What an agent has taken our rights to can be read and removed all the same, and nothing else is changed.
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
	reclaim(dir)
	for path, want := range map[string]os.FileMode{inner: 0o700 | os.ModeDir, filepath.Join(inner, "f"): 0o600, filepath.Join(inner, "mine"): 0o444} {
		if info, err := os.Lstat(path); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v; want %v", path, info.Mode(), err, want)
		}
	}
	reclaim(filepath.Join(dir, "missing"))
}

// R3: folders that an agent has closed, removed or replaced are ours again, and can be made durable and copied.
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
	if err := takeBack(root, folders); err != nil {
		t.Fatal(err)
	}
	for _, name := range folders {
		if err := syncTree(filepath.Join(root, name)); err != nil {
			t.Error(err)
		}
	}
	if err := copyTrees(root, filepath.Join(root, "copy"), folders); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(map[string]string{"closed/d/e/f": "f"}, contents(t, filepath.Join(root, "copy"))); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]string{"x": "untouched"}, contents(t, outside)); diff != "" {
		t.Error(diff)
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
		"/ files", "/etc/hostname files/etc/hostname", "/home/agent home", "/logs logs", "/opt/evalrun-none files/opt/evalrun-none", "/run run", "/srv/app workspace", "/tmp tmp",
		"/usr/bin/mine files/usr/bin/mine", "/var/tmp var-tmp",
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
		x := newExtraction(c.exclude, nil)
		if err := x.copy(below, c.rel, to); err != nil {
			t.Errorf("%s: %v", c.rel, err)
		}
		if want := c.rel == "out" || c.rel == "a/out"; (len(x.notes) > 0) != want {
			t.Errorf("%s: notes %q", c.rel, x.notes)
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

// R3: what cannot be kept is left out and noted, and what can be is kept.
func TestExtractionLeavesOutWhatCannotBeKept(t *testing.T) {
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
	t.Cleanup(func() { reclaim(below) })
	to := t.TempDir()
	x := newExtraction(nil, nil)
	if err := x.copy(below, "a", to); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"kept": "2"}, contents(t, to)); diff != "" {
		t.Error(diff)
	}
	want := []string{"closed: permission denied", "file: permission denied", "sparse: too large: 1024 MiB are kept"}
	if diff := cmp.Diff(want, x.notes); diff != "" {
		t.Error(diff)
	}

	// What does not fit beside what is there, or has too long a name there.
	for rel, to := range map[string]string{"b": filepath.Join(to, "kept", "b"), long: filepath.Join(to, strings.Repeat(long+"/", 16))} {
		x := newExtraction(nil, nil)
		if err := x.copy(below, rel, to); err != nil || len(x.notes) != 1 {
			t.Errorf("%s: %v, %q", rel, err, x.notes)
		}
	}
}

func TestExtractionStopsAtItsLimit(t *testing.T) {
	below, to := tree(t, t.TempDir(), map[string]string{"a": "12345", "b": "123456", "c": "12345"}), t.TempDir()
	x := newExtraction(nil, nil)
	x.left = 10
	if err := x.copy(below, "", to); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(map[string]string{"a": "12345", "c": "12345"}, contents(t, to)); diff != "" {
		t.Error(diff)
	}
	if len(x.notes) != 1 || !strings.HasPrefix(x.notes[0], "b: too large") {
		t.Errorf("notes %q", x.notes)
	}
	many := t.TempDir()
	for i := range maxNotes + 2 {
		x.note(many, i)
	}
	if len(x.notes) != maxNotes+1 {
		t.Errorf("%d notes", len(x.notes))
	}
}

// R3: a copy of a file that has only a size takes no room either.
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
