package web_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/runner"
)

// scoredRun adds a run whose agent says one word to all evaluations.
func (d *desk) scoredRun(says string) string {
	d.Helper()
	var evaluations []string
	for i := range 8 {
		evaluations = append(evaluations, fmt.Sprintf(`{"id": "e%d", "name": "<i>E%d</i>", "inputs": {}, "evaluationCriterias": {"x": {"expectedOutput": {"say": "%s"}}}}`, i, i, []string{"yes", "yes", "no"}[i%3]))
	}
	path := filepath.Join(d.TempDir(), "set.json")
	if err := os.WriteFile(path, fmt.Appendf(nil, `{"version": "1.0", "id": "c", "name": "C", "agent": {"type": "function", "command": ["sh", "-c", "cat >/dev/null; echo '{\"say\":\"%s\"}'"]},
		"evaluators": [{"id": "x", "evaluatorTypeId": "uipath-exact-match", "evaluatorConfig": {"targetOutputKey": "say"}}], "evaluations": [%s]}`, says, strings.Join(evaluations, ",")), 0o600); err != nil {
		d.Fatal(err)
	}
	set, err := runner.Load([]string{path}, runner.LoadOptions{})
	if err != nil {
		d.Fatal(err)
	}
	created, err := d.store.Create(context.Background(), set, runner.CreateOptions{})
	if err != nil {
		d.Fatal(err)
	}
	if _, err := d.store.Run(context.Background(), created.RunID, runner.RunOptions{}); err != nil {
		d.Fatal(err)
	}
	return created.RunID
}

func TestTwoRunsAreCompared(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	good, bad := d.scoredRun("yes"), d.scoredRun("no")
	for _, c := range []struct {
		path   string
		status int
		want   []string
	}{
		{"/compare", http.StatusOK, []string{"A, the baseline"}},
		{"/compare?a=" + good + "&b=" + bad, http.StatusOK, []string{"8 pairs", "regressed", "difference -0.500", "95 % interval", "A difference of 0.", "Became worse", "&lt;i&gt;E7&lt;/i&gt;"}},
		{"/compare?a=" + bad + "&b=" + good, http.StatusOK, []string{"improved", "Became better"}},
		{"/compare?a=" + good + "&b=" + good, http.StatusOK, []string{"A and B are the same", "No evaluation differs"}},
		{"/compare?a=" + good + "&b=" + bad + "&margin=two", http.StatusOK, []string{"Margin: expected a number"}},
		{"/compare?a=" + good + "&b=" + d.runID, http.StatusUnprocessableEntity, []string{`role="alert"`, "all the same"}},
		{"/compare?a=nothing&b=" + bad, http.StatusUnprocessableEntity, []string{`role="alert"`, "nothing"}},
	} {
		status, page := d.do("GET", c.path, nil)
		if status != c.status || strings.Contains(page, "<i>E") || strings.Contains(page, "%!") {
			t.Errorf("%s: %d", c.path, status)
		}
		for _, want := range c.want {
			if !strings.Contains(page, want) {
				_, main, _ := strings.Cut(page, "<main")
				t.Errorf("%s lacks %q:\n%s", c.path, want, main)
			}
		}
	}
}
