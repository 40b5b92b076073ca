package crash

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/testenv"
)

// Given an evalrun that is killed while it fetches tasks of a git repository, then nothing of what is
// half there is used, whatever has become of it, and the next call fetches it and leaves nothing
// beside it.
func TestKilledWhileFetching(t *testing.T) {
	testenv.NeedLong(t)
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("there is no git: install Debian's package git")
	}
	for _, step := range []string{"written:1", "written:2", "moved:1", "moved:2"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			s := emptyScenario(t, "failpoint")
			registry := s.repository("one", "two")
			out, err := s.fetch(registry, "EVALRUN_FAILPOINT=kill:taskcache."+step)
			if err := wantKilled(err); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			s.spoilUnrecorded()
			if out, err := s.fetch(registry); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			var doc struct {
				Summary struct {
					Total int
					Score float64
				}
			}
			if err := json.Unmarshal([]byte(testenv.ReadFile(t, s.dir, "results.json")), &doc); err != nil || doc.Summary.Total != 2 || doc.Summary.Score != 1 {
				t.Errorf("%v, %+v", err, doc)
			}
			for pattern, want := range map[string]int{"tmp/*": 0, "folders/*.json": 2, "folders/*": 4} {
				if left, _ := filepath.Glob(filepath.Join(s.dir, "cache", pattern)); len(left) != want {
					t.Errorf("%s: %v", pattern, left)
				}
			}
		})
	}
}

// repository makes one of tasks that pass, and a registry of them.
func (s *scenario) repository(names ...string) (registry string) {
	s.t.Helper()
	repository := filepath.Join(s.dir, "repository")
	type task struct {
		Name   string `json:"name"`
		URL    string `json:"git_url"`
		Commit string `json:"git_commit_id"`
		Path   string `json:"path"`
	}
	var tasks []task
	for _, name := range names {
		tasks = append(tasks, task{Name: name, URL: "file://" + repository, Path: name})
		for file, content := range map[string]string{"task.toml": "schema_version = \"1.3\"\n", "instruction.md": "Do nothing.\n", "solution/solve.sh": "true\n", "tests/test.sh": "echo 1 >\"$EVALRUN_LOGS_DIR/verifier/reward.txt\"\n"} {
			path := filepath.Join(testenv.Mkdir(s.t, repository, name, filepath.Dir(file)), filepath.Base(file))
			if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
				s.t.Fatal(err)
			}
		}
	}
	git := func(args ...string) string {
		cmd := exec.Command("git", append([]string{"-C", repository, "-c", "user.name=a", "-c", "user.email=a@b"}, args...)...)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull)
		out, err := cmd.Output()
		if err != nil {
			s.t.Fatalf("git %v: %v", args, err)
		}
		return strings.TrimSpace(string(out))
	}
	git("init", "--quiet")
	git("add", ".")
	git("commit", "--quiet", "-m", "tasks")
	for i := range tasks {
		tasks[i].Commit = git("rev-parse", "HEAD")
	}
	registry = filepath.Join(s.dir, "registry.json")
	text, err := json.Marshal([]any{map[string]any{"name": "small", "version": "1.0", "description": "", "tasks": tasks}})
	if err = errors.Join(err, os.WriteFile(registry, text, 0o600)); err != nil {
		s.t.Fatal(err)
	}
	return registry + "#small@1.0"
}

// fetch runs the tasks of a registry.
func (s *scenario) fetch(registry string, env ...string) (out string, err error) {
	cmd := exec.Command(s.program, "run", "--isolation", "process", "--agent", "oracle", "-o", "results.json", "-d", registry)
	cmd.Dir = s.dir
	cmd.Env = append(append(os.Environ(), "EVALRUN_TASKS="+filepath.Join(s.dir, "cache")), env...)
	said, err := cmd.CombinedOutput()
	return string(said), err
}

// spoilUnrecorded makes every script fail that is in the cache without being recorded as whole.
func (s *scenario) spoilUnrecorded() {
	s.t.Helper()
	err := filepath.WalkDir(filepath.Join(s.dir, "cache"), func(path string, e fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".sh") {
			return err
		}
		if parts := strings.Split(strings.TrimPrefix(path, s.dir), string(filepath.Separator)); parts[2] == "folders" {
			if _, err := os.Stat(filepath.Join(s.dir, "cache", "folders", parts[3]+".json")); err == nil {
				return nil
			}
		}
		return os.WriteFile(path, []byte("exit 1\n"), 0o644)
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// wantKilled is nil if a process was killed.
func wantKilled(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.String() == "signal: killed" {
		return nil
	}
	return fmt.Errorf("it was not killed: %w", err)
}
