//go:build linux

package setfiles

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/evalrun/evalrun/internal/snapshot"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/rules"
	"github.com/evalrun/evalrun/internal/store/sqlite"
)

func opened(t *testing.T) *rules.Store {
	t.Helper()
	s, err := sqlite.Open(t.TempDir(), store.Options{KeepFiles: new(int64(1_000_000))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// written makes files in a folder: each has its name as content, or as many bytes as a number says.
func written(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		path := filepath.Join(dir, name)
		content := name
		if strings.HasPrefix(filepath.Base(name), "large") {
			content = strings.Repeat("x", 1000)
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), 0o640)); err != nil {
			t.Fatal(err)
		}
	}
}

func filesBelow(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			rel, _ := filepath.Rel(dir, path)
			names = append(names, rel)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestWhatIsKept(t *testing.T) {
	ctx := t.Context()
	for _, test := range []struct {
		name    string
		files   []string
		with    func(t *testing.T, dir string)
		named   []string
		part    bool // not the whole folder
		want    []string
		wantOut []string // the named ones
		notes   []string
	}{
		{name: "the whole folder, without what begins with a dot, what tools make anew and variables",
			files: []string{"agent.py", "lib/a.py", ".env", "keys.env", "node_modules/x.js", "lib/__pycache__/a.pyc", "store/store.db"},
			named: []string{"agent.py", "missing.py"}, want: []string{"agent.py", "lib/a.py"}, wantOut: []string{"agent.py"}},
		{name: "what git ignores is not kept", files: []string{"agent.py", "out/results.json", ".gitignore"},
			with: func(t *testing.T, dir string) {
				t.Helper()
				if err := os.WriteFile(filepath.Join(dir, ".gitignore"), []byte("out/\n"), 0o600); err != nil {
					t.Fatal(err)
				}
				if _, err := exec.LookPath("git"); err != nil {
					t.Skip("needs git")
				}
				if out, err := exec.Command("git", "-C", dir, "init", "-q").CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
			}, want: []string{"agent.py"}},
		{name: "in a repository that git cannot read what is named", files: []string{"agent.py", "keys.txt", ".git/config"},
			named: []string{"agent.py"}, want: []string{"agent.py"}, wantOut: []string{"agent.py"}, notes: []string{"git does not say"}},
		{name: "of too many files those that are named", files: []string{"a", "b", "c", "d", "e", "f", "agent.py", "task/x", "task/.y"},
			named: []string{"agent.py", "task"}, want: []string{"agent.py", "task/.y", "task/x"}, wantOut: []string{"agent.py", "task"},
			notes: []string{"more than 5 files"}},
		{name: "of too large ones, too, as far as they fit", files: []string{"agent.py", "large1", "large2", "large3", "folder/large4", "folder/z"},
			named: []string{"large1", "large2", "folder", "agent.py"}, want: []string{"agent.py", "large1"},
			wantOut: []string{"large1", "agent.py"},
			notes:   []string{"folder has more than", "large2 is not in the plan", "folder is not in the plan"}},
		{name: "without a set only what is named, and of links what is behind them", files: []string{"agent.py", "other", "../outside"},
			with: func(t *testing.T, dir string) {
				t.Helper()
				if err := os.Symlink("../outside", filepath.Join(dir, "link")); err != nil {
					t.Fatal(err)
				}
			},
			part: true, named: []string{"agent.py", "link", "../outside", "/bin/sh"}, want: []string{"agent.py", "link"},
			wantOut: []string{"agent.py", "link"}, notes: []string{"../outside is outside of the eval set's folder"}},
		{name: "nothing", part: true, named: []string{"none"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := opened(t)
			dir := filepath.Join(t.TempDir(), "set")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			written(t, dir, test.files...)
			if test.with != nil {
				test.with(t, dir)
			}
			f := Folder{Dir: dir, Whole: !test.part, Named: test.named, Without: filepath.Join(dir, "store"), MostFiles: 5, MostBytes: 1500}
			k, needs, notes, err := f.Keep(ctx, s.Dir(), s)
			if err != nil {
				t.Fatal(err)
			}
			if len(notes) != len(test.notes) {
				t.Errorf("the notes are %q", notes)
			}
			for i, want := range test.notes[:min(len(notes), len(test.notes))] {
				if !strings.Contains(notes[i], want) {
					t.Errorf("a note is %q, expected %q", notes[i], want)
				}
			}
			if test.want == nil {
				if k != nil || needs != nil {
					t.Errorf("it keeps %+v", k)
				}
				return
			}
			if !slices.Equal(k.Named, test.wantOut) {
				t.Errorf("it names %q, expected %q", k.Named, test.wantOut)
			}
			to := filepath.Join(t.TempDir(), "there", "set")
			if err := k.Get(ctx, s, to); err != nil {
				t.Fatal(err)
			}
			if got := filesBelow(t, to); !slices.Equal(got, test.want) {
				t.Errorf("it has %q, expected %q", got, test.want)
			}
			if info, err := os.Lstat(filepath.Join(to, "agent.py")); err != nil || info.Mode() != 0o640 {
				t.Errorf("agent.py has the mode %v, %v", info.Mode(), err)
			}
			if left, _ := filepath.Glob(filepath.Join(s.Dir(), "set-*")); len(left) > 0 {
				t.Errorf("%q is left", left)
			}
			if !k.IsIn(to) || !k.IsIn(dir) {
				t.Error("the folder is not taken for the set's")
			}
			if len(k.Named) > 0 {
				if err := os.Remove(filepath.Join(to, k.Named[0])); err != nil {
					t.Fatal(err)
				}
				if k.IsIn(to) {
					t.Errorf("a folder without %s is taken for the set's", k.Named[0])
				}
			}
		})
	}
}

// Several processes of a machine make the folder at once, and each has it whole.
func TestSeveralGetTheFolderAtOnce(t *testing.T) {
	s := opened(t)
	dir := t.TempDir()
	written(t, dir, "agent.py", "lib/a.py", "large")
	k, _, _, err := Folder{Dir: dir, Whole: true, MostFiles: 5, MostBytes: 5000}.Keep(t.Context(), s.Dir(), s)
	if err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), "set")
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			if err := k.Get(t.Context(), s, to); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(filepath.Join(to, "lib/a.py")); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(to), "*")); len(left) != 1 {
		t.Errorf("there is %q", left)
	}
}

// lossy is a store that gives back other blocks than it was given.
type lossy struct {
	*rules.Store
	change func(*store.Block) bool
}

func (l lossy) Blocks(ctx context.Context, sums []string, f func(store.Block) error) error {
	return l.Store.Blocks(ctx, sums, func(b store.Block) error {
		if !l.change(&b) {
			return nil
		}
		return f(b)
	})
}

func TestFilesThatAreLost(t *testing.T) {
	s := opened(t)
	dir := t.TempDir()
	written(t, dir, "agent.py")
	k, _, _, err := Folder{Dir: dir, Whole: true, MostFiles: 5, MostBytes: 5000}.Keep(t.Context(), s.Dir(), s)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*store.Block) bool{
		"missing": func(*store.Block) bool { return false },
		"damaged": func(b *store.Block) bool { b.Data = b.Data[:len(b.Data)/2]; return true },
	} {
		to := filepath.Join(t.TempDir(), "set")
		if err := k.Get(t.Context(), lossy{s, change}, to); !errors.Is(err, snapshot.ErrLost) || !strings.Contains(err.Error(), "eval set's folder") {
			t.Errorf("%s: %v", name, err)
		}
		if left, _ := filepath.Glob(filepath.Join(filepath.Dir(to), "*")); len(left) != 0 {
			t.Errorf("%s: %q is left", name, left)
		}
	}
}
