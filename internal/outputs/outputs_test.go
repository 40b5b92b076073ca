package outputs

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// TestOnlyWhatIsWholeIsTaken keeps an output, and damages it in every way: it is taken whole or not at
// all, and leaves nothing behind.
func TestOnlyWhatIsWholeIsTaken(t *testing.T) {
	dir, from := t.TempDir(), t.TempDir()
	write(t, filepath.Join(from, "trace.jsonl"), "{}")
	const sum = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
	q := Question{Evaluation: "a", Epoch: 1, Input: json.RawMessage(`{"q":1}`)}
	e := Entry{RolloutID: "r", Output: json.RawMessage(`{"content":"x"}`), Files: []File{{"trace.jsonl", sum}}}
	c := New(dir)
	folder, err := c.folder(q)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := c.Get(q, t.TempDir()); got != nil || err != nil {
		t.Fatal(got, err)
	}
	for name, damage := range map[string]func(){
		"":                            func() {},
		"a file with another content": func() { write(t, filepath.Join(folder, "files", "trace.jsonl"), "[]") },
		"a file that is gone":         func() { _ = os.Remove(filepath.Join(folder, "files", "trace.jsonl")) },
		"an entry that is torn":       func() { write(t, filepath.Join(folder, "entry.json"), `{"output":{"con`) },
		"a name outside": func() {
			write(t, filepath.Join(folder, "entry.json"), `{"output":{},"files":[{"name":"../../x","sha256":"`+sum+`"}]}`)
		},
	} {
		if err := c.Put(q, e, from); err != nil {
			t.Fatal(err)
		}
		damage()
		into := t.TempDir()
		got, err := c.Get(q, into)
		if err != nil || (got != nil) != (name == "") {
			t.Errorf("%s: %v %v", name, got, err)
		}
		if left, _ := os.ReadDir(into); len(left) != 0 && name != "" {
			t.Errorf("%s: %v is left", name, left)
		}
	}
	for _, other := range []Question{
		{Evaluation: "a", Epoch: 2, Input: q.Input},
		{Evaluation: "b", Epoch: 1, Input: q.Input},
		{Evaluation: "a", Epoch: 1, Input: json.RawMessage(`{"q":2}`)},
		{Evaluation: "a", Epoch: 1, Input: q.Input, Program: "p"},
		{Evaluation: "a", Epoch: 1, Input: q.Input, Session: "s"},
		{Evaluation: "a", Epoch: 1, Input: q.Input, Functions: json.RawMessage(`{"behaviors":[]}`)},
		{Evaluation: "a", Epoch: 1, Input: q.Input, Variables: map[string]string{"V": "1"}},
	} {
		if got, err := c.Get(other, t.TempDir()); got != nil || err != nil {
			t.Error(other, got, err)
		}
	}
}

// TestSums says which files of a folder are a program's.
func TestSums(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a.py", "b/c.py", ".env", ".git/x", "b/.hidden", "node_modules/x.js", "__pycache__/a.pyc",
		"venv/pyvenv.cfg", "venv/lib.py", "out.json"} {
		write(t, filepath.Join(dir, name), name)
	}
	var tree Tree
	sums := func() map[string]string {
		t.Helper()
		got, err := tree.Sums([]string{dir, filepath.Join(dir, "missing")},
			func(path string) bool { return filepath.Base(path) == "out.json" })
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	first := sums()
	for _, name := range []string{"a.py", "b/c.py", ".env"} {
		if first[filepath.Join(dir, name)] == "" {
			t.Error(name, "is missing")
		}
	}
	if len(first) != 3 {
		t.Error(first)
	}
	write(t, filepath.Join(dir, "a.py"), "b.py") // as long, and at once
	if second := sums(); Digest(first) == Digest(second) || len(second) != 3 {
		t.Error("a change was not seen:", second)
	}
}

// TestSumsOfLinks has a program whose folder is a link, and which has links to folders elsewhere, to one above
// itself, and to what is installed: what they lead to is the program's, too.
func TestSumsOfLinks(t *testing.T) {
	top := t.TempDir()
	write(t, filepath.Join(top, "v1", "a.py"), "a")
	write(t, filepath.Join(top, "v1", "b", "c.py"), "c")
	write(t, filepath.Join(top, "shared", "lib.py"), "lib")
	write(t, filepath.Join(top, "installed", "x.js"), "x")
	for name, to := range map[string]string{"current": "v1", "v1/lib": "../shared", "v1/b/up": "../../v1", "shared/again": ".",
		"v1/node_modules": "../installed", "v1/gone": "nowhere"} {
		if err := os.Symlink(to, filepath.Join(top, name)); err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Join(top, "current")
	var tree Tree
	sums := func() map[string]string {
		t.Helper()
		got, err := tree.Sums([]string{dir}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	first := sums()
	for _, name := range []string{"a.py", "b/c.py", "lib/lib.py"} {
		if first[filepath.Join(dir, name)] == "" {
			t.Error(name, "is missing")
		}
	}
	if len(first) != 3 {
		t.Error(first)
	}
	write(t, filepath.Join(top, "shared", "lib.py"), "LIB")
	if second := sums(); Digest(first) == Digest(second) {
		t.Error("a change was not seen")
	}
}
