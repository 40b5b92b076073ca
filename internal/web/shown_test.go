package web_test

import (
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/record"
)

var runsOfSpace = regexp.MustCompile(`\s+`)

// shownText is what a reader sees of a part of a page.
func shownText(page string) string {
	return strings.TrimSpace(runsOfSpace.ReplaceAllString(html.UnescapeString(tagsOf.ReplaceAllString(page, " ")), " "))
}

// partOf is what stands between two texts of a page.
func partOf(t testing.TB, page, from, to string) string {
	t.Helper()
	_, page, ok := strings.Cut(page, from)
	page, _, ok2 := strings.Cut(page, to)
	if !ok || !ok2 {
		t.Fatalf("the page has no %q before %q", from, to)
	}
	return page
}

const shownSet = `{"version": "1.0", "id": "s", "name": "S", "agent": {"type": "function", "command": ["sh", "agent.sh"]},
 "evaluators": [{"id": "x", "evaluatorTypeId": "uipath-exact-match", "evaluatorConfig": {"name": "Category", "targetOutputKey": "category"}},
  {"id": "y", "evaluatorTypeId": "uipath-contains", "evaluatorConfig": {"name": "Names the team", "targetOutputKey": "reply"}},
  {"id": "zz", "evaluatorTypeId": "uipath-json-similarity", "evaluatorConfig": {"name": "Fields"}},
  {"id": "z", "type": "command", "command": ["sh", "-c", "cat <<'X'\n{\"score\": 1, \"details\": {\"actual\": \"['a', 'b']\", \"expected\": \"['a', 'b']\", \"lcs\": [\"a\", \"b\"]}}\nX"]}],
 "evaluations": [{"id": "a", "name": "A", "inputs": {"n": 1, "deep": {"a": {"b": {"c": [1, {}, null]}}}}, "expectedOutput": {"category": "bug", "entities": {"plan": "team"}},
  "evaluationCriterias": {"x": {"expectedOutput": {"category": "bug"}}, "y": {"searchText": "Team"}, "z": {}, "zz": {"expectedOutput": {"entities": {"plan": "team"}}}}}]}`

// W12: a value is a tree in which texts stand as they are, once, and what is not as it was expected is
// marked; what evaluators go by is apart from what the output is expected to be. An evaluator that has given
// its best score says so in a line, in the words of people.
func TestValuesAreTreesAndPassedEvaluatorsALine(t *testing.T) {
	t.Parallel()
	d := newDeskOf(t, t.TempDir(), shownSet, `printf '%s\n' '{"category": "how-to", "reply": "Dear <b>customer,\nthe Team answers.", "entities": {"plan": "team"}}'
`)
	_, page := d.do("GET", "/runs/"+d.runID+"/rollouts/"+d.document().EvaluationSetResults[0].RolloutID, nil)
	values := partOf(t, page, "Input, expected, output</h2>", "<h2")
	expected := shownText(partOf(t, values, "<h3>Expected</h3>", "<h3>Output</h3>"))
	if !strings.HasPrefix(expected, "{2} category ≠ bug entities {1} plan team as JSON") || !strings.Contains(expected, "What 3 evaluators go by Category {1} expectedOutput {1} category bug") || !strings.Contains(expected, "Names the team {1} searchText Team") {
		t.Errorf("what is expected is shown as %q", expected)
	}
	_, output, _ := strings.Cut(values, "<h3>Output</h3>")
	tree, _, _ := strings.Cut(output, "as JSON")
	if text := shownText(tree); text != "{3} category ≠ how-to entities {1} plan team reply Dear <b>customer, the Team answers." {
		t.Errorf("the output is shown as %q", text)
	}
	if n := strings.Count(output, "the Team answers."); n != 2 { // in the tree and in the JSON, which is folded
		t.Errorf("the reply is shown %d times", n)
	}
	if input := partOf(t, values, "<h3>Input</h3>", "as JSON"); shownText(input) != "{2} deep {1} a {1} b {1} c [3] 0 1 1 {} 2 null n 1" || strings.Count(input, "<details open>") != 3 {
		t.Errorf("the input is shown as %q", shownText(input))
	}
	scores := texts(partOf(t, page, "Why this score", "Timeline</h2>"), `><th scope="row"`)
	if len(scores) != 4 {
		t.Fatalf("%q", scores)
	}
	for _, row := range scores[1:] {
		if want := map[string]string{"Names the team y": "as expected: team", "z": "as expected: a, b", "Fields zz": "leaves equal: 1 of 1"}[html.UnescapeString(row[0])]; want == "" || row[2] != want {
			t.Errorf("%q, want %q", row, want)
		}
	}
}

// W12: a trajectory is searched as a whole, and what an agent tells in whole seconds does not come before
// the segment in which it was.
func TestStepsAreFoundAndInOrder(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, "account")
	one := s.rollout("account")
	began := *one.StartedAt
	tr := record.OpenTrajectory(filepath.Join(s.store.Dir(), "runs", s.runID, "rollouts", one.RolloutID, "segments", "1.1"), nil, func() time.Time { return began.Truncate(time.Second) })
	for i := range 250 {
		tr.Call("s", record.Call{ID: fmt.Sprint(i), Name: "look", Status: "completed", Input: json.RawMessage(fmt.Sprintf(`{"n":"number-%d"}`, i)), Output: json.RawMessage(`"nothing"`), StartedAt: began.Truncate(time.Second)})
	}
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	steps := func(query string) []string {
		_, page, _ := strings.Cut(s.page(s.path(one)+query), `<ol class="steps">`)
		page, _, _ = strings.Cut(page, "</ol>")
		return strings.Split(page, `<li id=`)[1:]
	}
	if found := steps("?find=NUMBER-217"); len(found) != 1 || !strings.Contains(found[0], "number-217") {
		t.Errorf("%d steps are found", len(found))
	}
	if found := steps("?find=nowhere"); len(found) != 0 || !strings.Contains(s.page(s.path(one)+"?find=nowhere"), `value="nowhere"`) {
		t.Errorf("%d steps are found, or the field has gone", len(found))
	}
	if all := steps(""); !strings.Contains(all[0], "segment 1") || began.Nanosecond() == 0 {
		t.Errorf("the first step is %s", shownText(all[0]))
	}
}

// W12: in the list of rollouts each evaluator has a column, and a reader chooses the columns, also without
// script.
func TestColumnsAreChosen(t *testing.T) {
	t.Parallel()
	s := newSite(t, 2, "account", "wrong")
	heads := func(query string) string {
		return shownText(partOf(t, s.page("/runs/"+s.runID+"?view=rollouts"+query), `id="rollouts"><thead>`, "</thead>"))
	}
	all := heads("")
	if !strings.HasPrefix(all, "Status Evaluation Agent Epoch Score Category ") || !strings.HasSuffix(all, " Working Waiting First reason") {
		t.Errorf("the columns are %q", all)
	}
	for _, query := range []string{"&hide=agent,e0,waiting,nothing", "&columns=agent,epoch,score,e0,working,waiting,reason&column=epoch&column=score&column=working&column=reason"} {
		if got := heads(query); got != "Status Evaluation Epoch Score Working First reason" {
			t.Errorf("%s: the columns are %q", query, got)
		}
	}
	row := texts(s.page("/runs/"+s.runID+"?view=rollouts&sort=set&hide=working"), ` id="r`+s.rollout("wrong").RolloutID)[0]
	if row[4] != "0.000" || row[5] != "0.000" || row[6] != "–" {
		t.Errorf("the row is %q", row)
	}
}

// The name of nothing is answered with the nearest one, and a comparison without runs offers them.
func TestWhatIsNotThereIsAnsweredWithWhatIs(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, "account")
	near := s.runID[:len(s.runID)-1] + "_"
	for path, want := range map[string]string{"/runs/" + near: `did you mean "` + s.runID + `"?`, "/runs/" + s.runID + "/e/acount-0/one/1": `did you mean "account-0"?`, "/runs/" + s.runID + "/e/account-0/on/9": `did you mean "one"?`} {
		if w := s.get(path); w.Code != http.StatusNotFound || !strings.Contains(html.UnescapeString(w.Body.String()), want) {
			t.Errorf("%s: %d, without %q: %s", path, w.Code, want, shownText(w.Body.String()))
		}
	}
	other := s.another(filepath.Join(filepath.Dir(s.store.Dir()), "set.json"))
	page := s.page("/compare?b=" + s.runID)
	if rows := texts(page, `><th scope="row"`); len(rows) != 1 || !strings.Contains(page, `href="?a=`+other+`&amp;b=`+s.runID+`"`) {
		t.Errorf("%q is offered", rows)
	}
}
