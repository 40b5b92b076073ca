package web_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/runner"
)

// W3: why a task has failed stands on its page and in the list: the last lines of its verifier.
func TestAFailedTaskSaysWhatItsVerifierSaid(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	task := filepath.Join(dir, "task")
	for name, text := range map[string]string{
		"task.toml":            "schema_version = \"1.3\"\n[task]\nname = \"x/y\"\n",
		"instruction.md":       "Do it.\n",
		"environment/seed.txt": "x\n",
		"tests/test.sh":        "echo 'FAILED test_y.py::test_it - assert 1 == <2>'; echo '==== 1 failed in 0.01s ===='; echo ================; echo 0 >\"${EVALRUN_LOGS_DIR:-/logs}/verifier/reward.txt\"\n",
		"solution/solve.sh":    "true\n",
	} {
		file := filepath.Join(task, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	s := newSiteFrom(t, dir, task, runner.LoadOptions{Agents: []string{"nop"}, Sandbox: runner.SandboxOptions{Isolation: "process"}})
	const assertion = "FAILED test_y.py::test_it - assert 1 == &lt;2&gt;"
	if _, list, _ := strings.Cut(s.page("/runs/"+s.runID), `id="rollouts"`); !strings.Contains(list, assertion) {
		t.Errorf("the list does not say why: %s", list)
	}
	page := s.page(s.path(s.all[0]))
	_, scores, _ := strings.Cut(page, `id="scores"`)
	scores, _, _ = strings.Cut(scores, "</table>")
	if !strings.Contains(scores, assertion) {
		t.Errorf("the page does not say why: %s", scores)
	}
}
