package taskcache

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/testenv"
)

// upstream is a repository on this machine that others fetch from.
type upstream struct {
	t   *testing.T
	dir string
}

func newUpstream(t *testing.T) upstream {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("there is no git: install Debian's package git")
	}
	u := upstream{t, filepath.Join(t.TempDir(), "hello.git")}
	u.git("", "init", "--quiet", "--bare", u.dir)
	return u
}

func (u upstream) folder(commit, path string) Folder {
	f, err := New("file://"+u.dir, commit, path)
	if err != nil {
		u.t.Fatal(err)
	}
	return f
}

func (u upstream) git(stdin string, args ...string) string {
	u.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Stdin = strings.NewReader(stdin)
	cmd.Env = append(os.Environ(), "GIT_DIR="+u.dir, "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b", "GIT_CONFIG_GLOBAL="+os.DevNull)
	out, err := cmd.CombinedOutput()
	if err != nil {
		u.t.Fatalf("git %v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func (u upstream) blob(content string) string { return u.git(content, "hash-object", "-w", "--stdin") }

// tree makes a tree of lines such as "100644 blob ID NAME".
func (u upstream) tree(lines ...string) string {
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(strings.Fields(a)[3], strings.Fields(b)[3]) })
	for i, line := range lines {
		f := strings.SplitN(line, " ", 4)
		lines[i] = strings.Join(f[:3], " ") + "\t" + f[3]
	}
	return u.git(strings.Join(lines, "\n")+"\n", "mktree", "--missing")
}

// rawTree makes a tree that git's own commands would not make, of one entry.
func (u upstream) rawTree(mode, name, id string) string {
	var raw strings.Builder
	raw.WriteString(mode + " " + name + "\x00")
	for i := 0; i < len(id); i += 2 {
		raw.WriteByte(unhex(id[i])<<4 | unhex(id[i+1]))
	}
	return u.git(raw.String(), "hash-object", "-t", "tree", "-w", "--literally", "--stdin")
}

func unhex(c byte) byte { return byte(strings.IndexByte("0123456789abcdef", c)) }

// commit makes a commit of a tree, and a branch of it.
func (u upstream) commit(branch, tree string) string {
	id := u.git("", "commit-tree", "-m", "x", tree)
	u.git("", "update-ref", "refs/heads/"+branch, id)
	return id
}

// task is the tree of a task whose instruction is a text.
func (u upstream) task(text string) string {
	return u.tree("100644 blob "+u.blob("schema_version = \"1.4\"\n")+" task.toml", "100644 blob "+u.blob(text)+" instruction.md",
		"040000 tree "+u.tree("100755 blob "+u.blob("true\n")+" test.sh", "120000 blob "+u.blob("test.sh")+" again.sh")+" tests")
}

func (u upstream) tasks(texts ...string) string {
	var lines []string
	for _, text := range texts {
		lines = append(lines, "040000 tree "+u.task(text)+" "+text)
	}
	return u.tree("040000 tree "+u.tree(lines...)+" tasks", "160000 commit "+strings.Repeat("1", 40)+" elsewhere")
}

func read(t *testing.T, f Fetched) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(f.Dir, "instruction.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestFetchedOnce(t *testing.T) {
	testenv.NeedSlow(t)
	for name, serve := range map[string]func(t *testing.T, u upstream) string{
		"all of a commit": func(_ *testing.T, u upstream) string { return "file://" + u.dir },
		"only the files": func(_ *testing.T, u upstream) string {
			u.git("", "config", "uploadpack.allowFilter", "true")
			return "file://" + u.dir
		},
		"a server that can neither": func(t *testing.T, u upstream) string {
			u.git("", "update-server-info")
			server := httptest.NewServer(http.FileServer(http.Dir(u.dir)))
			t.Cleanup(server.Close)
			return server.URL
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := newUpstream(t)
			first := u.commit("main", u.tasks("a", "b"))
			second := u.git("", "commit-tree", "-m", "y", "-p", first, u.tasks("a", "c"))
			u.git("", "update-ref", "refs/heads/main", second)
			address := serve(t, u)
			folder := func(commit, path string) Folder { return Folder{address, commit, path} }
			dir := t.TempDir()
			var said []string
			c := Open(dir, func(line string) { said = append(said, line) })
			got, err := c.Get(t.Context(), []Folder{folder(first, "tasks/a"), folder(first, "tasks/b"), folder("main", "tasks/c")})
			if err != nil {
				t.Fatal(err)
			}
			for i, want := range []string{"a", "b", "c"} {
				if read(t, got[i]) != want || filepath.Base(got[i].Dir) != want {
					t.Errorf("%s has %q", got[i].Dir, read(t, got[i]))
				}
			}
			if got[2].Commit != second {
				t.Errorf("main is %s, expected %s", got[2].Commit, second)
			}
			if info, err := os.Stat(filepath.Join(got[0].Dir, "tests", "again.sh")); err != nil || info.Mode()&0o111 == 0 {
				t.Errorf("the link to a program: %v, %v", info, err)
			}
			if len(said) != 2 {
				t.Errorf("said %q", said)
			}
			// The repository is gone, and what was fetched is there.
			if err := os.RemoveAll(u.dir); err != nil {
				t.Fatal(err)
			}
			again, err := Open(dir, nil).Get(t.Context(), []Folder{folder(first, "tasks/b"), folder(second, "tasks/c")})
			if err != nil || read(t, again[0]) != "b" || again[1].Dir != got[2].Dir {
				t.Errorf("%+v, %v", again, err)
			}
			_, err = Open(dir, nil).Get(t.Context(), []Folder{folder("main", "tasks/c")})
			if err == nil || !strings.Contains(err.Error(), "full id of a commit") {
				t.Errorf("a branch of a repository that is gone: %v", err)
			}
			left, err := os.ReadDir(filepath.Join(dir, "tmp"))
			if err != nil || len(left) > 0 {
				t.Errorf("left: %v, %v", left, err)
			}
		})
	}
}

// What is not whole, or was changed, is fetched again and never used.
func TestNothingHalfFetchedIsUsed(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	u := newUpstream(t)
	f := u.folder(u.commit("main", u.tasks("a")), "tasks/a")
	dir := t.TempDir()
	get := func() Fetched {
		t.Helper()
		got, err := Open(dir, nil).Get(t.Context(), []Folder{f})
		if err != nil || read(t, got[0]) != "a" {
			t.Fatalf("%+v, %v", got, err)
		}
		if _, err := os.Stat(filepath.Join(got[0].Dir, "tests", "test.sh")); err != nil {
			t.Fatal(err)
		}
		return got[0]
	}
	got := get()
	record := filepath.Dir(got.Dir) + ".json"
	for name, harm := range map[string]func() error{
		"a file is missing": func() error { return os.Remove(filepath.Join(got.Dir, "tests", "test.sh")) },
		"a file is changed": func() error { return os.WriteFile(filepath.Join(got.Dir, "instruction.md"), []byte("b"), 0o600) },
		"no record":         func() error { return os.Remove(record) },
		"a torn record":     func() error { return os.WriteFile(record, []byte(`{"sou`), 0o600) },
		"no folder":         func() error { return os.RemoveAll(filepath.Dir(got.Dir)) },
		"a killed fetch": func() error {
			return errors.Join(os.Remove(record), os.MkdirAll(filepath.Join(dir, "tmp", key(f.URL)+"-12345678", "git"), 0o700))
		},
	} {
		if err := harm(); err != nil {
			t.Fatal(name, err)
		}
		get()
		if left, err := os.ReadDir(filepath.Join(dir, "tmp")); err != nil || len(left) > 0 {
			t.Errorf("%s: left %v, %v", name, left, err)
		}
	}
}

func TestOneFetchForAll(t *testing.T) {
	t.Parallel()
	u := newUpstream(t)
	f := u.folder(u.commit("main", u.tasks("a")), "tasks/a")
	dir := t.TempDir()
	var mu sync.Mutex
	fetches := 0
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			got, err := Open(dir, func(line string) {
				mu.Lock()
				defer mu.Unlock()
				if strings.HasPrefix(line, "fetching") {
					fetches++
				}
			}).Get(t.Context(), []Folder{f})
			if err != nil || read(t, got[0]) != "a" {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
	all.Wait()
	if fetches != 1 {
		t.Errorf("fetched %d times", fetches)
	}
}

func TestHostileRepositories(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	u := newUpstream(t)
	dir := t.TempDir()
	file := u.blob("x")
	link := func(target string) string { return "120000 blob " + u.blob(target) + " link" }
	for name, test := range map[string]struct{ tree, why string }{
		"submodule":         {u.tree("160000 commit "+strings.Repeat("1", 40)+" sub", "100644 blob "+file+" f"), "is a submodule"},
		"absolute link":     {u.tree(link("/etc/passwd")), "leads out"},
		"link out":          {u.tree(link("../../x")), "leads out|leads nowhere"},
		"link to nothing":   {u.tree(link("nothing")), "leads nowhere"},
		"link to itself":    {u.tree(link("link")), "leads nowhere"},
		"link by a link":    {u.tree("040000 tree "+u.tree("120000 blob "+u.blob("..")+" up")+" d", "120000 blob "+u.blob("d/up/..")+" out"), "leads out"},
		"file named ..":     {u.rawTree("100644", "..", file), "leads out|fsck|invalid"},
		"folder named ..":   {u.rawTree("40000", "..", u.tree("100644 blob "+file+" f")), "leads out|fsck|invalid"},
		"file with a slash": {u.rawTree("100644", "../../f", file), "leads out|full pathname|contains"},
		"folder .git":       {u.rawTree("40000", ".GIT", u.tree("100644 blob "+file+" config")), "belongs to git"},
		"large file":        {u.tree("100644 blob " + u.blob("version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 5\n") + " f"), "Git LFS"},
		"a device":          {u.rawTree("20000", "f", file), "is a submodule"},
		"nothing":           {u.git("", "mktree"), "is empty"},
	} {
		_, err := Open(dir, nil).Get(t.Context(), []Folder{u.folder(u.commit("x", test.tree), ".")})
		if err == nil || !slices.ContainsFunc(strings.Split(test.why, "|"), func(why string) bool { return strings.Contains(err.Error(), why) }) {
			t.Errorf("%s: %v; expected an error with %q", name, err, test.why)
		}
	}
	if left, err := os.ReadDir(filepath.Join(dir, "folders")); err != nil || len(left) > 0 {
		t.Errorf("kept: %v, %v", left, err)
	}
	good := u.commit("main", u.tasks("a"))
	for name, f := range map[string]Folder{
		"no such commit": u.folder(strings.Repeat("12", 20), "."),
		"no such folder": u.folder(good, "tasks/b"),
		"a file":         u.folder(good, "tasks/a/task.toml"),
		"no such branch": u.folder("other", "."),
		"short commit":   u.folder(good[:12], "tasks/a"),
		"no repository":  {URL: "file:///nowhere/at/all", Commit: good, Path: "."},
	} {
		if _, err := Open(dir, nil).Get(t.Context(), []Folder{f}); err == nil {
			t.Errorf("%s: no error", name)
		} else {
			t.Log(name, err)
		}
	}
}

// Attributes and settings of the repository run nothing.
func TestNothingOfTheRepositoryIsRun(t *testing.T) {
	u := newUpstream(t)
	ran := filepath.Join(t.TempDir(), "ran")
	tree := u.tree("100644 blob "+u.blob("* filter=evil export-ignore text eol=crlf\n")+" .gitattributes",
		"100644 blob "+u.blob("[submodule \"x\"]\n\tpath = x\n\turl = ext::touch "+ran+"\n")+" .gitmodules", "100644 blob "+u.blob("a\nb\n")+" instruction.md")
	got, err := Open(t.TempDir(), nil).Get(t.Context(), []Folder{u.folder(u.commit("main", tree), ".")})
	if err != nil || read(t, got[0]) != "a\nb\n" {
		t.Errorf("%+v, %v", got, err)
	}
	if filepath.Base(got[0].Dir) != "hello" {
		t.Errorf("it is called %s", got[0].Dir)
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("a program was run")
	}
}

func TestAFetchIsBrokenOff(t *testing.T) {
	u := newUpstream(t)
	f := u.folder(u.commit("main", u.tasks("a")), "tasks/a")
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "locks"), 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("stopped")
	c := Open(dir, func(string) { cancel(stopped) })
	start := time.Now()
	if _, err := c.Get(ctx, []Folder{f}); !errors.Is(err, stopped) {
		t.Errorf("got %v after %v", err, time.Since(start))
	}
	if left, err := os.ReadDir(filepath.Join(dir, "tmp")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
