package web_test

import (
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/web"
)

// twoRaters is a set whose every rollout is rated by two people.
const twoRaters = `{"version": "1.0", "id": "s", "name": "S", "agent": {"type": "function", "command": ["sh", "agent.sh"]},
 "evaluators": [{"version": "1.0", "id": "v", "type": "human", "evaluatorConfig": {"name": "V", "question": "Is it polite?", "answer": "boolean", "raters": 2}}],
 "evaluations": [{"id": "a", "name": "A", "inputs": {}, "evaluationCriterias": {"v": {}}}, {"id": "b", "name": "B", "inputs": {}, "evaluationCriterias": {"v": {}}},
  {"id": "c", "name": "C", "inputs": {}, "evaluationCriterias": {"v": {}}}]}`

// A rollout that waits for two raters is one rollout.
func TestRolloutsThatWaitAreCountedOnce(t *testing.T) {
	t.Parallel()
	d := newDeskOf(t, t.TempDir(), twoRaters, "echo '{}'\n")
	if text := d.text("/inbox"); !strings.Contains(text, "of 3 rollouts wait") || strings.Contains(text, "6 rollouts") {
		t.Error(text)
	}
	if text := d.text("/runs/" + d.runID); !strings.Contains(text, "TASK Is it polite?3") {
		t.Error(text)
	}
}

// A report of a run that waits for raters says what they are asked.
func TestAReportSaysWhatEvaluatorsWaitFor(t *testing.T) {
	t.Parallel()
	d := newDeskOf(t, t.TempDir(), twoRaters, "echo '{}'\n")
	if page := d.reportOf(d.runID, web.ReportOptions{}); !strings.Contains(page, "TASK Is it polite?: 3 rollouts") {
		t.Error(page)
	} else {
		var details []struct{ Texts [][2]string }
		unpack(t, page, "d0", &details)
		if last := details[0].Texts[len(details[0].Texts)-1]; !strings.HasPrefix(last[0], "Waits for TASK") || !strings.Contains(last[1], "polite") {
			t.Errorf("the last that a rollout has is %s", last)
		}
	}
	if page := d.reportOf(d.runID, web.ReportOptions{RedactIO: true}); !strings.Contains(page, "TASK: 3 rollouts") || strings.Contains(page, "Is it polite") {
		t.Error("what raters are asked is in a report without inputs and outputs")
	}
}
