package web_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/testenv"
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
	if whole := s.page(s.path(s.rollout("whole"))); !strings.Contains(whole, `rel="prev"`) || strings.Contains(whole, `rel="next"`) {
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

// pairsAgent passes for alpha and fails for beta, passes in one of three epochs for alpha, and faults in
// one of them by itself or by its environment.
const pairsAgent = `read -r line
once() { mkdir "DIR/$1" 2>/dev/null; }
good='{"x": 1}' bad='{"x": 2}'
case $line in
*split*) if [ "$1" = alpha ]; then echo "$good"; else echo "$bad"; fi ;;
*flaky*) if [ "$1" = beta ] || once "flaky"; then echo "$good"; else echo "$bad"; fi ;;
*own*) if once "own-$1"; then echo nonsense; else echo "$good"; fi ;;
*env*) if once "env-$1"; then exit 3; else echo "$good"; fi ;;
*) echo "$good" ;;
esac
`

// pairsSite is a site of a run of two agents whose faults of the category exit are the environment's.
func pairsSite(t *testing.T, reduce string) *site {
	t.Helper()
	var evaluations []string
	for _, id := range []string{"good", "split", "flaky", "own", "env"} {
		evaluations = append(evaluations, `{"id": "`+id+`", "name": "`+id+`", "inputs": {"do": "`+id+`"}, "evaluationCriterias": {"x": {"expectedOutput": {"x": 1}}}}`)
	}
	return siteOfSet(t, `{"version": "1.0", "id": "s", "name": "Pairs", "epochs": {"count": 3, "reduce": "`+reduce+`"}, "faults": {"exit": "environment"},
 "agents": [{"type": "function", "name": "alpha", "command": ["sh", "agent.sh", "alpha"]}, {"type": "function", "name": "beta", "command": ["sh", "agent.sh", "beta"]}],
 "evaluators": [{"id": "x", "evaluatorTypeId": "uipath-exact-match", "evaluatorConfig": {"targetOutputKey": "x"}}],
 "evaluations": [`+strings.Join(evaluations, ",")+`]}`, strings.ReplaceAll(pairsAgent, "DIR", t.TempDir()))
}

// order is the evaluations of a list in its order, each as often as it has rows.
func (s *site) order(query string) (out []string) {
	s.Helper()
	for _, m := range regexp.MustCompile(`<div class="evn"><a class="u" href="[^"]*">([^<]*)<`).FindAllStringSubmatch(s.page("/runs/"+s.runID+query), -1) {
		out = append(out, m[1])
	}
	return out
}

// The matrix has of each agent the score that the statistics count: reduced as the set says, with a fault
// of the agent as 0 and one of the environment left out. It is sorted by the lowest of them.
func TestTheMatrixHasTheScoresOfTheStatistics(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	for reduce, want := range map[string]string{ // alpha's and beta's scores of each evaluation
		"mean":       "good 1.000 1.000, split 1.000 0.000, flaky 0.333 1.000, own 0.667 0.667, env 1.000 1.000",
		"atLeastOne": "good 1.000 1.000, split 1.000 0.000, flaky 1.000 1.000, own 1.000 1.000, env 1.000 1.000",
		"all":        "good 1.000 1.000, split 1.000 0.000, flaky 0.000 1.000, own 0.000 0.000, env 1.000 1.000",
	} {
		t.Run(reduce, func(t *testing.T) {
			t.Parallel()
			s := pairsSite(t, reduce)
			scores := func(query string) string {
				rows := strings.Split(s.page("/runs/"+s.runID+query), `<div class="evn">`)[1:]
				var got []string
				for i, id := range s.order(query) {
					for _, m := range regexp.MustCompile(`id="p\d+-\d+">([^<]*)<`).FindAllStringSubmatch(rows[i], -1) {
						id += " " + m[1]
					}
					got = append(got, id)
				}
				return strings.Join(got, ", ")
			}
			if got := scores("?sort=set"); got != want {
				t.Errorf("%s\nwant %s", got, want)
			}
			s.checkMatrix(s.results(s.runID))
			if reduce != "mean" {
				return
			}
			for query, want := range map[string]string{
				// W9: without a word what has failed comes first.
				"":                        "split 1.000 0.000, flaky 0.333 1.000, own 0.667 0.667, env 1.000 1.000, good 1.000 1.000",
				"?sort=score":             "split 1.000 0.000, flaky 0.333 1.000, own 0.667 0.667, good 1.000 1.000, env 1.000 1.000",
				"?sort=score&agent=alpha": "flaky 0.333, own 0.667, good 1.000, split 1.000, env 1.000",
				"?sort=score&agent=beta":  "split 0.000, own 0.667, good 1.000, flaky 1.000, env 1.000",
			} {
				if got := scores(query); got != want {
					t.Errorf("%s: %s\nwant %s", query, got, want)
				}
			}
		})
	}
}

// Flakiest first goes by evaluation and agent, in both views: what alpha always passes and beta never does
// is not flaky.
func TestFlakiestFirstIsForEachAgent(t *testing.T) {
	t.Parallel()
	s := pairsSite(t, "mean")
	for query, want := range map[string]string{
		"?sort=flaky":                          "flaky own good split env",
		"?sort=flaky&agent=alpha":              "flaky own good split env",
		"?sort=flaky&agent=beta":               "own good split flaky env",
		"?sort=flaky&view=rollouts&agent=beta": "own own own good good good split split split flaky flaky flaky env env env",
	} {
		if got := strings.Join(s.order(query), " "); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
	if got := strings.Join(s.order("?sort=flaky&view=rollouts")[:10], " "); got != "flaky flaky flaky own own own own own own good" {
		t.Errorf("the flakiest rollouts are %s", got)
	}
	flaky := 0
	for _, a := range s.head.Statistics.PerAgent() {
		flaky += len(a.Flaky)
	}
	if flaky != 3 {
		t.Errorf("the results have %d flaky pairs", flaky)
	}
}

// The first reason is the worst that the evaluators have found, and the opened row has them in that order.
func TestTheFirstReasonIsTheWorst(t *testing.T) {
	t.Parallel()
	s := siteOfSet(t, `{"version": "1.0", "id": "s", "name": "Worst", "agent": {"type": "function", "command": ["sh", "agent.sh"]},
 "evaluators": [{"id": "cmd", "type": "command", "command": ["sh", "-c", "echo '{\"score\": 0.75}'"]},
  {"id": "good", "evaluatorTypeId": "uipath-exact-match", "evaluatorConfig": {"targetOutputKey": "y"}},
  {"id": "Answer", "evaluatorTypeId": "uipath-exact-match", "evaluatorConfig": {"targetOutputKey": "x"}}],
 "evaluations": [{"id": "one", "name": "One", "inputs": {}, "evaluationCriterias": {"cmd": {}, "good": {"expectedOutput": {"y": 1}}, "Answer": {"expectedOutput": {"x": 2}}}}]}`, `echo '{"x": 1, "y": 1}'`)
	s.says(s.page("/runs/"+s.runID), "Answer 0: expected 2, got 1")
	var why struct {
		Why        string
		Evaluators []struct{ Name string }
	}
	if err := json.Unmarshal(s.get(s.path(s.all[0])+"/why").Body.Bytes(), &why); err != nil {
		t.Fatal(err)
	}
	_, details := s.report(web.ReportOptions{})
	for name, got := range map[string]string{"row": fmt.Sprint(why.Evaluators), "report": details[0].Evaluators[0].Name + " " + details[0].Evaluators[1].Name + " " + details[0].Evaluators[2].Name} {
		if strings.Trim(strings.NewReplacer("{", "", "}", "").Replace(got), "[]") != "Answer cmd good" {
			t.Errorf("the evaluators of the opened %s are %s", name, got)
		}
	}
	for _, text := range []string{why.Why, details[0].Why} {
		if a, b := strings.Index(text, "Answer 0"), strings.Index(text, "cmd 0.75"); a < 0 || b < a {
			t.Errorf("the reasons are %s", text)
		}
	}
}
