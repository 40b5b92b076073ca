package web_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/web"
)

// siteOfSet is a site of a run of a set, of which agent.sh is an agent.
func siteOfSet(t *testing.T, set, agent string) *site {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"set.json": set, "agent.sh": agent} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return newSiteOf(t, dir)
}

// An evaluator that fails is never green: the list does not say that nothing failed, the filter of the
// evaluator and the keys for failures find the rollout, and its reason is the evaluator's error.
func TestAnEvaluatorThatFailsIsFound(t *testing.T) {
	t.Parallel()
	const set = `{"version": "1.0", "id": "s", "name": "Errors", "agent": {"type": "function", "command": ["sh", "agent.sh"]},
 "evaluators": [{"id": "x", "evaluatorTypeId": "uipath-exact-match", "evaluatorConfig": {"targetOutputKey": "x"}}, CMD],
 "evaluations": [
  {"id": "whole", "name": "Whole", "inputs": {}, "evaluationCriterias": {"x": {"expectedOutput": {"x": 1}}}},
  {"id": "first", "name": "First", "inputs": {}, "evaluationCriterias": {"x": {"expectedOutput": {"x": 1}}, "cmd": {}}},
  {"id": "second", "name": "Second", "inputs": {}, "evaluationCriterias": {"x": {"expectedOutput": {"x": 1}}, "cmd": {}}}]}`
	of := func(script string) *site {
		cmd := `{"id": "cmd", "type": "command", "command": ["sh", "-c", "` + script + `"]}`
		return siteOfSet(t, strings.Replace(set, "CMD", cmd, 1), `echo '{"x": 1}'`)
	}
	if s := of(`echo '{\"score\": 1}'`); !strings.Contains(s.page("/runs/"+s.runID), "Nothing failed") {
		t.Error("all is good, and the page does not say so")
	}
	s := of("echo boom >&2; exit 1")
	found := regexp.MustCompile(`id="found">([^<]*)<`)
	for query, want := range map[string]string{"": "3 of 3 rollouts", "?evaluator=cmd": "2 of 3 rollouts", "?evaluator=x": "0 of 3 rollouts", "?evaluator=cmd&view=rollouts": "2 of 3 rollouts"} {
		page := s.page("/runs/" + s.runID + query)
		if strings.Contains(page, "Nothing failed") {
			t.Errorf("%s: the page says that nothing failed", query)
		}
		if got := found.FindStringSubmatch(page); got[1] != want {
			t.Errorf("%s: %s, want %s", query, got[1], want)
		}
		if n := strings.Count(words(page), "cmd failed: the evaluator failed: exit status 1: boom"); query != "?evaluator=x" && n != 2 {
			t.Errorf("%s: %d rows have the evaluator's error as their reason:\n%s", query, n, words(page))
		}
	}
	first := s.page(s.path(s.rollout("first")))
	if !strings.Contains(first, `rel="next"`) || !strings.Contains(first, "/rollouts/"+s.rollout("second").RolloutID) || !strings.Contains(words(first), "1 of 2") {
		t.Error("the next failure is not the other rollout of which the evaluator failed")
	}
	if whole := s.page(s.path(s.rollout("whole"))); !strings.Contains(whole, `rel="next"`) || strings.Contains(words(whole), "1 of 2") {
		t.Error("a rollout in which nothing failed is a failure")
	}
	why := s.page(s.path(s.rollout("first")) + "/why")
	if !strings.Contains(why, "cmd failed") {
		t.Errorf("the opened row says %s", why)
	}
	page, details := s.report(web.ReportOptions{FailedOnly: true})
	if strings.Contains(page, "Nothing failed") || details[0] != nil || details[1] == nil || details[2] == nil {
		t.Errorf("the report says that nothing failed, or lacks what an evaluator failed in: %v", details)
	}
}
