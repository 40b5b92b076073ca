package uipath

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Given eval sets with each verdict, when pytest runs them, then each has its verdict as its outcome,
// and whatever is not passed fails pytest.
func TestPytest(t *testing.T) {
	interpreter, err := filepath.Abs(python(t))
	if err != nil {
		t.Fatal(err)
	}
	sdk, err := filepath.Abs("../../../sdk/python")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	evalrun(t, dir, []int{0}, "version") // it is built now
	const set = `{"version": "1.0", "id": "s", "name": "S", "agent": {"type": "function", "command": ["echo", "AGENT"]}, THRESHOLDS
		"evaluators": [{"version": "1.0", "id": "e", "evaluatorTypeId": "uipath-exact-match", "evaluatorConfig": {}}],
		"evaluations": [{"id": "a", "name": "A", "inputs": {}, "evaluationCriterias": {"e": {"expectedOutput": {"a": 1}}}}]}`
	const right, waits = `{\"a\": 1}`, `{\"__interrupt__\": [{\"id\": \"i\", \"value\": 1}]}`
	for name, v := range map[string]struct {
		agent, thresholds, outcome string
		code                       int
	}{
		"passed":    {right, `"thresholds": {"score": 1},`, "1 passed", 0},
		"failed":    {`{}`, `"thresholds": {"score": 1},`, "1 failed", 1},
		"undecided": {right, `"thresholds": {"score": {"min": 0.9, "by": "interval"}},`, "1 undecided", 1},
		"suspended": {waits, ``, "1 suspended", 1},
		"an error":  {right, `"epochs": 0,`, "expected a whole number from 1", 1},
	} {
		file := filepath.Join(dir, name+".json")
		text := strings.NewReplacer("AGENT", v.agent, "THRESHOLDS", v.thresholds).Replace(set)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(interpreter, "-m", "pytest", "-p", "evalrun.pytest_plugin", "-p", "no:cacheprovider", file) //nolint:gosec // of our own environment
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PYTHONPATH="+sdk, "PYTHONDONTWRITEBYTECODE=1", "EVALRUN_PROGRAM="+program)
		out, _ := cmd.CombinedOutput() // its code is looked at
		if code := cmd.ProcessState.ExitCode(); code != v.code || !strings.Contains(string(out), v.outcome) {
			t.Errorf("%s: exit code %d\n%s", name, code, out)
		}
	}
}
