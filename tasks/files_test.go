package tasks

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// copies gives the task's files as "source destination", the source relative to the task.
func copies(t *testing.T, dir string) []string {
	t.Helper()
	task, _ := Load(dir)
	files, err := task.Files()
	if err != nil {
		return []string{err.Error()}
	}
	var out []string
	for _, c := range files {
		rel, err := filepath.Rel(dir, c.Source)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, rel+" "+c.Destination)
	}
	return out
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "task.toml", "")
	equal(t, "without environment", copies(t, dir), []string(nil))

	for _, name := range []string{"a.txt", "b[1].txt", "data/c.txt", ".hidden", ".dockerignore", "docker-compose.yaml"} {
		write(t, dir, "environment/"+name, "x")
	}
	all := []string{"environment/.hidden /app/.hidden", "environment/a.txt /app/a.txt", "environment/b[1].txt /app/b[1].txt", "environment/data /app/data"}
	equal(t, "without Dockerfile", copies(t, dir), all)
	write(t, dir, "task.toml", "[environment]\nworkdir = '/w'")
	equal(t, "workdir of task.toml", copies(t, dir)[1], "environment/a.txt /w/a.txt")
}

// Given a link that leads out of environment/, when the files are listed, then it is refused.
func TestFilesBehindLinks(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "task.toml", "")
	write(t, dir, "solution/solve.sh", "x")
	write(t, dir, "environment/a", "x")
	if err := os.Symlink("a", filepath.Join(dir, "environment", "inside")); err != nil {
		t.Fatal(err)
	}
	equal(t, "inside", copies(t, dir), []string{"environment/a /app/a", "environment/inside /app/inside"})
	if err := os.Symlink("../solution", filepath.Join(dir, "environment", "outside")); err != nil {
		t.Fatal(err)
	}
	if got := copies(t, dir); len(got) != 1 || !strings.Contains(got[0], "environment/outside: cannot be copied: path escapes") {
		t.Errorf("got %v", got)
	}
	task, _ := Load(dir)
	if gaps := task.Gaps(everything); len(gaps) != 1 || gaps[0].Key != "environment" {
		t.Errorf("gaps: %v", gaps)
	}
}
