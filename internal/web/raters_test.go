package web_test

import (
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/web"
	"github.com/evalrun/evalrun/runner"
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
	if text := d.text("/runs/" + d.runID); !strings.Contains(text, "question Is it polite?3") {
		t.Error(text)
	}
}

// A report of a run that waits for raters says what they are asked.
func TestAReportSaysWhatEvaluatorsWaitFor(t *testing.T) {
	t.Parallel()
	d := newDeskOf(t, t.TempDir(), twoRaters, "echo '{}'\n")
	if page := d.reportOf(d.runID, web.ReportOptions{}); !strings.Contains(page, "question Is it polite?: 3 rollouts") {
		t.Error(page)
	} else {
		var details []struct{ Texts [][2]string }
		unpack(t, page, "d0", &details)
		if last := details[0].Texts[len(details[0].Texts)-1]; !strings.HasPrefix(last[0], "Waits for the question") || !strings.Contains(last[1], "polite") {
			t.Errorf("the last that a rollout has is %s", last)
		}
	}
	if page := d.reportOf(d.runID, web.ReportOptions{RedactIO: true}); !strings.Contains(page, "question: 3 rollouts") || strings.Contains(page, "Is it polite") {
		t.Error("what raters are asked is in a report without inputs and outputs")
	}
}

// A question has its title for a name wherever it is waited for, and not that of the application that asks
// many; it is found by both.
func TestAWaitIsNamedByItsQuestion(t *testing.T) {
	t.Parallel()
	d := newDeskOf(t, t.TempDir(), `{"version": "1.0", "id": "s", "name": "S", "agent": {"type": "function", "command": ["sh", "agent.sh"]}, "evaluators": [],
 "evaluations": [{"id": "a", "name": "A", "inputs": {"title": "Pay 12?", "app_name": "Payroll"}, "evaluationCriterias": {}},
  {"id": "b", "name": "B", "inputs": {"title": "Hire Bo?", "app_name": "Payroll"}, "evaluationCriterias": {}}]}`, approvalAgentWithoutData)
	for path, want := range map[string][]string{
		"/runs/" + d.runID:      {"question Pay 12?1", "question Hire Bo?1", "waiting for TASK Pay 12?", "waiting for TASK Hire Bo?"},
		"/triggers?q=pay+12":    {"question Pay 12?"},
		"/triggers?q=payroll":   {"question Pay 12?", "question Hire Bo?"},
		"/inbox?q=payroll":      {"Pay 12?", "Hire Bo?"},
		"/triggers?q=task-0000": {},
	} {
		text := d.text(path)
		for _, name := range want {
			if !strings.Contains(text, name) {
				t.Errorf("%s lacks %q: %s", path, name, text)
			}
		}
		if len(want) < 2 && strings.Contains(text, "Hire Bo?") {
			t.Errorf("%s has what was not looked for", path)
		}
	}
}

// approvalAgentWithoutData asks what its input says.
const approvalAgentWithoutData = `read -r line
printf '{"__interrupt__":[{"id":"q","value":{"type":"CreateTask",%s]}\n' "$(echo "$line" | sed 's/.*"input":{//; s/},"resume".*/}}/')"
`

// W7: who rates without knowing the agent is led to no page that names it, and nobody rates as two people.
func TestABlindRaterAndOnePersonOnce(t *testing.T) {
	t.Parallel()
	d := newDeskOf(t, t.TempDir(), twoRaters, "echo '{}'\n")
	_, inbox := d.do("GET", "/inbox", nil)
	_, asks, _ := strings.Cut(inbox, `id="asks"`)
	for _, leads := range []string{"/rollouts/", `href="/runs/`, ">agent<"} {
		if strings.Contains(asks, leads) {
			t.Errorf("the question of a blind rater has %q", leads)
		}
	}
	var ids []string
	first := d.trigger("a")
	if err := d.store.Triggers(t.Context(), d.runID, false, func(tr runner.Trigger) error {
		if tr.RolloutID == first.RolloutID {
			ids = append(ids, tr.TriggerID)
		}
		return nil
	}); err != nil || len(ids) != 2 {
		t.Fatal(ids, err)
	}
	rate := func(id string) (int, string) {
		_, page := d.do("GET", "/runs/"+d.runID+"/rollouts/"+first.RolloutID, nil)
		return d.do("POST", "/triggers/"+id+"/answer", d.form(page, id, "verb", "rate", "f.0", "1", "confirm", "1"), "Accept", "application/json")
	}
	if status, said := rate(ids[0]); status != 200 || strings.Contains(said, first.RolloutID) {
		t.Error(status, said)
	}
	if status, said := rate(ids[1]); status != 422 || !strings.Contains(said, "you have rated this rollout already") {
		t.Error(status, said)
	}
	if _, said := d.do("GET", "/triggers/"+ids[0]+"/answer", nil, "Accept", "application/json"); !strings.Contains(said, "what counts") || !strings.Contains(said, `"payload"`) {
		t.Errorf("who has rated is told %s", said)
	}
	d.who.Name = "bo"
	for _, accept := range []string{"application/json", "text/html"} { // nor what another rater has said
		_, said := d.do("GET", "/triggers/"+ids[0]+"/answer", nil, "Accept", accept)
		if !strings.Contains(said, "Answered by ") || strings.Contains(said, first.RolloutID) || strings.Contains(said, "What counts") || strings.Contains(said, `"payload"`) {
			t.Errorf("a blind rater is told %s", said)
		}
	}
	if status, said := rate(ids[1]); status != 200 {
		t.Error(status, said)
	}
}
