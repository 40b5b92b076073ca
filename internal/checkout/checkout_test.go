package checkout

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheCommitIsThatOfTheCheckout(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("there is no git")
	}
	dir := t.TempDir()
	git := func(args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), "git", append([]string{"-C", dir, "-c", "user.name=x", "-c", "user.email=x@example.org"}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	var c Commits
	check := func(where, folder, want string) {
		t.Helper()
		for range 2 { // the second time it is known
			if got := c.Of(t.Context(), folder); got != want {
				t.Errorf("%s: %q, not %q", where, got, want)
			}
		}
	}
	check("no repository", dir, "")
	git("init", "-q")
	check("no commit", dir, "")
	git("commit", "-q", "--allow-empty", "-m", "one")
	first := git("rev-parse", "HEAD")
	check("one commit", dir, first)
	git("commit", "-q", "--allow-empty", "-m", "two")
	check("another commit", dir, git("rev-parse", "HEAD"))
	other := filepath.Join(t.TempDir(), "other")
	git("worktree", "add", "-q", "--detach", other, first)
	check("a further worktree", other, first)
	git("checkout", "-q", "--detach", first)
	check("another checkout", dir, first)
	if err := os.WriteFile(filepath.Join(dir, "set.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	dirty := func(where string, want bool) {
		t.Helper()
		var c Commits // which remembers the answer for a second
		if got := c.Dirty(t.Context(), dir); got == nil || *got != want {
			t.Errorf("%s: dirty is %v, not %v", where, got, want)
		}
	}
	dirty("a file that git does not know", false)
	git("add", "set.json")
	dirty("a file that is new to git", true)
	git("commit", "-q", "-m", "three")
	dirty("all is committed", false)
	if err := os.WriteFile(filepath.Join(dir, "set.json"), []byte("{ }"), 0o600); err != nil {
		t.Fatal(err)
	}
	dirty("a file that was changed", true)
	if got := c.Dirty(t.Context(), t.TempDir()); got != nil {
		t.Errorf("no repository: dirty is %v, not unknown", *got)
	}
}
