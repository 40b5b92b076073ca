package web_test

import (
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/testenv"
	"github.com/evalrun/evalrun/runner"
)

// another runs a set of its own in the desk's store.
func (d *desk) another(set string, o runner.CreateOptions) (runID string) {
	d.Helper()
	path := filepath.Join(d.TempDir(), "set.json")
	if err := os.WriteFile(path, []byte(set), 0o600); err != nil {
		d.Fatal(err)
	}
	loaded, err := runner.Load([]string{path}, runner.LoadOptions{})
	if err != nil {
		d.Fatal(err)
	}
	created, err := d.store.Create(d.Context(), loaded, o)
	if err != nil {
		d.Fatal(err)
	}
	if _, err := d.store.Run(d.Context(), created.RunID, runner.RunOptions{}); err != nil {
		d.Fatal(err)
	}
	return created.RunID
}

// verdictSet is a set of two evaluations, the first of which passes, without what becomes of the second.
const verdictSet = `{"version": "1.0", "id": "ID", "name": "ID", "agent": {"type": "function", "command": ["sh", "-c", "read -r l; case $l in *fault*) exit 3;; esac; echo '{\"say\":\"yes\"}'"]}, MORE
 "evaluators": [{"id": "x", "evaluatorTypeId": "uipath-exact-match", "evaluatorConfig": {"targetOutputKey": "say"}}, {"id": "y", "type": "command", "command": ["sh", "-c", "grep -q broken && exit 1; echo '{\"score\":1}'"]}],
 "evaluations": [{"id": "a", "name": "a", "inputs": {}, "evaluationCriterias": {"x": {"expectedOutput": {"say": "yes"}}}}, SECOND]}`

// The list of runs and the page of a run say the same verdict. Only what has exit code 0 has a tick,
// and the list is narrowed by the words that it shows.
func TestTheListSaysTheVerdictOfEachRun(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	d := newDesk(t)
	ids := map[string]string{"suspended": d.runID}
	cases := map[string]struct {
		more, second, class string
		list, page          []string
	}{
		"passed": {`"thresholds": {"score": 0.9},`, `{"id": "b", "name": "b", "inputs": {}, "evaluationCriterias": {"x": {"expectedOutput": {"say": "yes"}}}}`, "pass", nil, []string{"1 of 1 gate met.", "Exit code now: 0."}},
		// V10: without a threshold there is no verdict, and nothing is green.
		"finished": {"", `{"id": "b", "name": "b", "inputs": {}, "evaluationCriterias": {"x": {"expectedOutput": {"say": "no"}}}}`, "finished", []string{"no gate: 50 % passed"},
			[]string{"No gate: 50 % passed. Neither a threshold nor --fail-under says whether that is good enough.", "Exit code now: 0."}},
		"failed":  {`"thresholds": {"score": 0.9},`, `{"id": "b", "name": "b", "inputs": {}, "evaluationCriterias": {"x": {"expectedOutput": {"say": "no"}}}}`, "fail", []string{"1 of 1 gate not met"}, []string{"Exit code now: 1."}},
		"faulted": {"", `{"id": "b", "name": "b", "inputs": {"do": "fault"}, "evaluationCriterias": {"x": {"expectedOutput": {"say": "yes"}}}}`, "faulted", nil, []string{"1 of 2 rollouts faulted.", "Exit code now: 3."}},
		"evaluators failed": {"", `{"id": "b", "name": "b", "inputs": {"do": "broken"}, "evaluationCriterias": {"x": {"expectedOutput": {"say": "yes"}}, "y": {}}}`, "unscored", []string{"1 evaluator error"},
			[]string{"Evaluators failed 1 of 3 times; --fail-on-evaluator-error allows some.", "Exit code now: 3."}},
		"not all scored": {"", `{"id": "b", "name": "b", "inputs": {}, "evaluationCriterias": {}}`, "unscored", []string{"1 of 2 evaluations unscored"}, []string{"1 of 2 evaluations could not be scored", "Exit code now: 3."}},
	}
	for word, c := range cases {
		ids[word] = d.another(strings.NewReplacer("ID", word, "MORE", c.more, "SECOND", c.second).Replace(verdictSet), runner.CreateOptions{})
	}
	row := func(page, id string) string {
		_, row, ok := strings.Cut(page, `name="run" value="`+id+`"`)
		if row, _, _ = strings.Cut(row, "</tr>"); !ok {
			t.Fatalf("the list lacks %s:\n%s", id, page)
		}
		_, row, _ = strings.Cut(row, `<td data-l="Status">`)
		row, _, _ = strings.Cut(row, "</td>")
		return row
	}
	_, list := d.do("GET", "/", nil)
	for word, c := range cases {
		in := row(list, ids[word])
		if !strings.Contains(in, `<span class="st `+c.class+`">`) || !strings.Contains(in, "</svg>"+word+"<") {
			t.Errorf("%s: the list says %s", word, in)
		}
		for _, want := range c.list {
			if !strings.Contains(in, want) {
				t.Errorf("%s: the list lacks %q: %s", word, want, in)
			}
		}
		page := d.text("/runs/" + ids[word])
		_, page, _ = strings.Cut(page, "revision")
		for _, want := range append([]string{" " + word}, c.page...) {
			if !strings.Contains(page, want) {
				t.Errorf("%s: the page lacks %q:\n%s", word, want, page)
			}
		}
	}
	for word, id := range ids {
		_, page := d.do("GET", "/?status="+url.QueryEscape(word), nil)
		var found []string
		for _, one := range ids {
			if strings.Contains(page, `name="run" value="`+one+`"`) {
				found = append(found, one)
			}
		}
		if !slices.Equal(found, []string{id}) || !strings.Contains(page, `<option value="`+word+`" selected>`) {
			t.Errorf("%s: the filter finds %v, want %s", word, found, id)
		}
	}
	if _, page := d.do("GET", "/?status=successful", nil); strings.Count(page, `name="run" value="`) != 5 {
		t.Error("a link of before the words were those of verdicts")
	}
}

// A run that has ended and whose verdict is not known is not green.
func TestARunWithoutItsVerdictIsNotGreen(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	if err := os.Remove(d.store.DocumentPath(d.scoredRun("yes"))); err != nil {
		t.Fatal(err)
	}
	_, page := d.do("GET", "/?status=ended", nil)
	if strings.Count(page, `name="run" value="`) != 1 || !strings.Contains(page, `<td data-l="Status"><span class="st unscored">`) {
		t.Error(page)
	}
}

// Each thing is said once beside the verdict. The exit code is that without the allowances of the
// command, which are named.
func TestTheVerdictIsExplainedOnce(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	d := newDesk(t)
	for name, c := range map[string]struct {
		second      string
		commandLine []string
		want        string
	}{
		"a fault":          {`{"id": "b", "name": "b", "inputs": {"do": "fault"}, "evaluationCriterias": {"x": {"expectedOutput": {"say": "yes"}}}}`, nil, "The set has no thresholds, so that no score can fail it. 1 of 2 rollouts faulted. Exit code now: 3."},
		"an allowed fault": {`{"id": "b", "name": "b", "inputs": {"do": "fault"}, "evaluationCriterias": {"x": {"expectedOutput": {"say": "yes"}}}}`, []string{"evalrun", "run", "set.json", "--fail-on-error", "1", "--allow-suspended", "--", "a", "--allow-unscored"}, "The set has no thresholds, so that no score can fail it. 1 of 2 rollouts faulted. Exit code now: 3, without the --fail-on-error 1 and --allow-suspended with which the run was started."},
		"an evaluator":     {`{"id": "b", "name": "b", "inputs": {"do": "broken"}, "evaluationCriterias": {"x": {"expectedOutput": {"say": "yes"}}, "y": {}}}`, nil, "The set has no thresholds, so that no score can fail it. Evaluators failed 1 of 3 times; --fail-on-evaluator-error allows some. Exit code now: 3."},
		"nothing is wrong": {`{"id": "b", "name": "b", "inputs": {}, "evaluationCriterias": {"x": {"expectedOutput": {"say": "yes"}}}}`, []string{"evalrun", "run", "set.json", "--fail-on-error", "1"}, "No gate: 100 % passed. Neither a threshold nor --fail-under says whether that is good enough. Exit code now: 0."},
	} {
		id := d.another(strings.NewReplacer("ID", name, "MORE", "", "SECOND", c.second).Replace(verdictSet), runner.CreateOptions{CommandLine: c.commandLine})
		_, page := d.do("GET", "/runs/"+id, nil)
		_, why, _ := strings.Cut(page, `<span id="t-why" class="u">`)
		why, _, _ = strings.Cut(why, "</span>")
		if why != c.want {
			t.Errorf("%s: %q, want %q", name, why, c.want)
		}
	}
}

// V11: a run that waits and can no longer meet its gates says so in the list, too, and its page does not say
// that what is open could change it.
func TestARunThatFailsAlreadySaysSo(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	d := newDesk(t)
	id := d.another(`{"version": "1.0", "id": "already", "name": "already", "thresholds": {"passRate": 0.9}, "agent": {"type": "function", "command": ["sh", "-c", "read -r l; case $l in *ask*) echo '{\"__interrupt__\":[{\"id\":\"q\",\"value\":{\"type\":\"CreateTask\",\"title\":\"Go on?\"}}]}' ;; *) echo '{\"say\":\"no\"}' ;; esac"]},
 "evaluators": [{"id": "x", "evaluatorTypeId": "uipath-exact-match", "evaluatorConfig": {"targetOutputKey": "say"}}],
 "evaluations": [{"id": "a", "name": "a", "inputs": {}, "evaluationCriterias": {"x": {"expectedOutput": {"say": "yes"}}}}, {"id": "b", "name": "b", "inputs": {"do": "ask"}, "evaluationCriterias": {"x": {"expectedOutput": {"say": "yes"}}}}]}`, runner.CreateOptions{})
	_, list := d.do("GET", "/", nil)
	_, row, _ := strings.Cut(list, `name="run" value="`+id+`"`)
	if row, _, _ = strings.Cut(row, "</tr>"); !strings.Contains(row, "</svg>suspended<") || !strings.Contains(row, ">fails already<") {
		t.Error(row)
	}
	if page := d.text("/runs/" + id); !strings.Contains(page, "fails already") || strings.Contains(page, "can still change it") {
		t.Error(page)
	}
}
