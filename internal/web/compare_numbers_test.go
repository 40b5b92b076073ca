package web_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/eval/compare"
	"github.com/evalrun/evalrun/eval/stats"
	"github.com/evalrun/evalrun/internal/report"
	"github.com/evalrun/evalrun/internal/testenv"
	"github.com/evalrun/evalrun/runner"
)

// variedAgent answers by the number of the evaluation and by its first argument.
const variedAgent = `read -r line
n=$(printf '%s' "$line" | sed 's/.*"n": *//; s/[^0-9].*//')
case $line in *'"resume":{'*) n=0 ;; esac
case "$1 $n" in
"better "[0-9]|"worse "[0-2]) say=yes ;;
"waits 3") echo '{"__interrupt__":[{"id":"q","value":{"type":"CreateTask","title":"Go on?"}}]}'; exit ;;
"worse 7") exit 3 ;;
*) say=no ;;
esac
echo "{\"say\":\"$say\",\"reply\":\"We say $say, team $n\"}"
`

// variedRun adds a run of two agents and three epochs, which both say and reply by what is given.
// ids begin with prefix.
func (d *desk) variedRun(says, prefix string) string {
	d.Helper()
	var evaluations []string
	for i := range 12 {
		evaluations = append(evaluations, fmt.Sprintf(`{"id": "%s%d", "name": "E %d", "inputs": {"n": %d}, "evaluationCriterias": {"x": {"expectedOutput": {"say": "yes"}}, "t": {"searchText": "team 1"}}}`, prefix, i, i, i))
	}
	dir := d.TempDir()
	for name, text := range map[string]string{"agent.sh": variedAgent, "set.json": fmt.Sprintf(`{"version": "1.0", "id": "c", "name": "C", "epochs": 3,
 "agents": [{"type": "function", "name": "one", "command": ["sh", "agent.sh", "%[1]s"]}, {"type": "function", "name": "two, large", "command": ["sh", "agent.sh", "better"]}],
 "evaluators": [{"id": "x", "evaluatorTypeId": "uipath-exact-match", "evaluatorConfig": {"name": "Says <b>yes</b>", "targetOutputKey": "say"}},
  {"id": "t", "evaluatorTypeId": "uipath-contains", "evaluatorConfig": {"name": "Team", "targetOutputKey": "reply"}}], "evaluations": [%[2]s]}`, says, strings.Join(evaluations, ","))} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			d.Fatal(err)
		}
	}
	set, err := runner.Load([]string{filepath.Join(dir, "set.json")}, runner.LoadOptions{})
	if err != nil {
		d.Fatal(err)
	}
	created, err := d.store.Create(d.Context(), set, runner.CreateOptions{})
	if err != nil {
		d.Fatal(err)
	}
	if _, err := d.store.Run(d.Context(), created.RunID, runner.RunOptions{}); err != nil {
		d.Fatal(err)
	}
	return created.RunID
}

// compared is what evalrun compare --format json writes of two sides.
func (d *desk) compared(a, agentA, b, agentB string, o compare.Options) (doc compare.Document) {
	d.Helper()
	o.Settings = stats.DefaultSettings
	var sides [2]compare.Side
	for i, one := range [][2]string{{a, agentA}, {b, agentB}} {
		if err := d.store.Report(d.Context(), one[0], runner.Variables{}, func(r *runner.Report) (err error) {
			sides[i], err = r.Side(one[1])
			return err
		}); err != nil {
			d.Fatal(err)
		}
	}
	made, err := runner.Compare(sides[0], sides[1], o)
	if err != nil {
		d.Fatal(err)
	}
	var text bytes.Buffer
	if err := runner.WriteComparison(&text, made, "json"); err != nil {
		d.Fatal(err)
	}
	if err := json.Unmarshal(text.Bytes(), &doc); err != nil {
		d.Fatal(err)
	}
	return doc
}

// Every number of the page of a comparison is that of the JSON that evalrun compare writes: of runs with
// several agents, of one agent of each, of two agents of one run, of a side that is open, by other
// figures, with a margin.
func TestEveryNumberOfTheComparisonIsThatOfItsJSON(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	d := newDesk(t)
	better, worse, open := d.variedRun("better", "e"), d.variedRun("worse", "e"), d.variedRun("waits", "e")
	margin := 0.2
	verdicts, items, missing, mcnemar := map[compare.Verdict]bool{}, 0, 0, 0
	for _, c := range []struct {
		query string
		doc   compare.Document
	}{
		{"a=" + better + "&b=" + worse, d.compared(better, "", worse, "", compare.Options{})},
		{"a=" + worse + "&b=" + better, d.compared(worse, "", better, "", compare.Options{})},
		{"a=" + worse + ":one&b=" + better + ":one&by=evaluator:x", d.compared(worse, "one", better, "one", compare.Options{By: []string{"evaluator:x"}})},
		{"a=" + better + ":one&b=" + worse + ":one", d.compared(better, "one", worse, "one", compare.Options{})},
		{"a=" + worse + ":one&b=" + worse + ":two,%20large&margin=0.2", d.compared(worse, "one", worse, "two, large", compare.Options{Margin: &margin})},
		{"a=" + better + "&b=" + open, d.compared(better, "", open, "", compare.Options{})},
		{"a=" + better + "&b=" + worse + "&by=evaluator:x,%20passRate&margin=0.2", d.compared(better, "", worse, "", compare.Options{Margin: &margin, By: []string{"evaluator:x", "passRate"}})},
	} {
		status, page := d.do("GET", "/compare?"+c.query, nil)
		if status != http.StatusOK || strings.Contains(page, "<b>yes") || strings.Contains(page, "%!") {
			t.Errorf("%s: %d", c.query, status)
		}
		first := c.doc.Comparisons[0]
		want := fmt.Sprintf("%.3f in A, %.3f in B, difference %s, 95 %% interval %s to %s, p %s, over %d pairs.", first.MeanA, first.MeanB, sign(first.Delta), sign(*first.Low), sign(*first.High), report.PValue(first.P()), first.N)
		if _, verdict, _ := strings.Cut(page, `<div class="verdict">`); !strings.Contains(textOf(verdict), want) {
			t.Errorf("%s: the page lacks %q", c.query, want)
		}
		headlines := []compare.Verdict{first.Verdict}
		if len(c.doc.A.Agents) > 1 { // W6: each agent has a verdict of its own, and there is none over all
			headlines = nil
			for _, agent := range c.doc.A.Agents {
				one := d.compared(c.doc.A.RunID, agent, c.doc.B.RunID, agent, compare.Options{Margin: first.Margin, By: bys(c.doc)})
				headlines = append(headlines, one.Comparisons[0].Verdict)
			}
		}
		if got := regexp.MustCompile(`class="big ([a-z]*)"`).FindAllStringSubmatch(page, -1); len(got) != len(headlines) {
			t.Errorf("%s: %d headlines, want %d", c.query, len(got), len(headlines))
		} else {
			for i, verdict := range headlines {
				if got[i][1] != string(verdict) {
					t.Errorf("%s: headline %d is %s, want %s", c.query, i, got[i][1], verdict)
				}
			}
		}
		if !strings.Contains(page, fmt.Sprintf("<li>%d pairs</li>", c.doc.Pairs)) {
			t.Errorf("%s: it has not %d pairs", c.query, c.doc.Pairs)
		}
		rows := texts(page, ` data-by=`)
		if len(rows) != len(c.doc.Comparisons) {
			t.Fatalf("%s: %d rows", c.query, len(rows))
		}
		for i, r := range c.doc.Comparisons {
			verdicts[r.Verdict] = true
			name := r.Name
			if name == "" {
				name = map[string]string{"passRate": "pass rate"}[r.By]
			}
			if name == "" {
				name = r.By
			}
			interval := fmt.Sprintf("%s … %s", sign(*r.Low), sign(*r.High))
			want := []string{name, string(r.Verdict), fmt.Sprintf("%.3f", r.MeanA), fmt.Sprintf("%.3f", r.MeanB), sign(r.Delta), interval, report.PValue(r.P()), report.PValue(r.HolmP), fmt.Sprint(r.Regressions), fmt.Sprint(r.Improvements)}
			if got := trimmed(rows[i]); !slices.Equal(got, want) {
				t.Errorf("%s, %s:\n%q, and the JSON has\n%q", c.query, r.By, got, want)
			}
			if r.McNemarExact != nil {
				mcnemar++
				if want := fmt.Sprintf("%d became worse and %d better, McNemar’s exact p %s, mid-p %s.", r.Regressions, r.Improvements, report.PValue(*r.McNemarExact), report.PValue(*r.McNemarMidP)); !strings.Contains(html.UnescapeString(page), want) {
					t.Errorf("%s: the page lacks %q", c.query, want)
				}
			}
			// The drawing: a difference of 0 is in the middle, and all rows have one scale.
			if m := regexp.MustCompile(`<circle class="dot" cx="([0-9.]+)%"`).FindAllStringSubmatch(page, -1); (m[i][1] > "50.000") != (r.Delta > 0) && r.Delta != 0 {
				t.Errorf("%s, %s: its dot is at %s %%", c.query, r.By, m[i][1])
			}
		}
		got := texts(page, ` data-item=`)
		if len(got) != len(c.doc.Items) {
			t.Errorf("%s: %d evaluations differ, and in the JSON %d", c.query, len(got), len(c.doc.Items))
			continue
		}
		for i, item := range c.doc.Items {
			items++
			want := []string{item.EvaluationName + " " + item.EvaluationID}
			if slices.ContainsFunc(c.doc.Items, func(i compare.Item) bool { return i.Agent != "" }) {
				want = append(want, item.Agent)
			}
			want = append(want, "", "", fmt.Sprintf("%.3f", item.A), fmt.Sprintf("%.3f", item.B), sign(item.D), changed(item))
			if got := trimmed(got[i]); !slices.Equal(got, want) {
				t.Errorf("%s:\n%q, and the JSON has\n%q", c.query, got, want)
			}
		}
		if marks, want := marksOf(page), marksIn(c.doc); !slices.Equal(marks, want) {
			t.Errorf("%s: its marks are\n%q, and the JSON has\n%q", c.query, marks, want)
		}
		missing += len(c.doc.Missing)
		if len(c.doc.Missing) > 0 {
			for _, want := range []string{fmt.Sprintf("<summary>Not scored on both sides: %d</summary>", len(c.doc.Missing)), fmt.Sprintf("the difference is %s, at its best %s.", bound(first.Bounds[0]), bound(first.Bounds[1]))} {
				if !strings.Contains(html.UnescapeString(page), want) {
					t.Errorf("%s: the page lacks %q", c.query, want)
				}
			}
		}
		if first.MDE != nil && *first.MDE > 0 && !strings.Contains(page, fmt.Sprintf("a true difference of %s is detected", strings.TrimPrefix(bound(*first.MDE), "&#43;"))) && !strings.Contains(page, fmt.Sprintf("a true difference of %s is detected", strings.TrimPrefix(bound(*first.MDE), "+"))) {
			t.Errorf("%s: the page lacks the smallest difference %v", c.query, *first.MDE)
		}
	}
	if !verdicts[compare.Regressed] || !verdicts[compare.Improved] || !verdicts[compare.Undecided] || items < 20 || missing == 0 || mcnemar == 0 {
		t.Errorf("too little was compared: %v, %d evaluations that differ, %d missing, %d of McNemar", verdicts, items, missing, mcnemar)
	}
}

// sign is a difference with its sign and three decimals.
func sign(x float64) string { return fmt.Sprintf("%+.3f", x) }

// bound is a difference as sentences have it.
func bound(x float64) string {
	text := strings.TrimRight(strings.TrimRight(fmt.Sprintf("%+.4f", math.Round(x*1e4)/1e4), "0"), ".")
	if text == "+" || text == "-" || text == "+0" || text == "-0" {
		return "0"
	}
	return text
}

func textOf(page string) string { return html.UnescapeString(tagsOf.ReplaceAllString(page, "")) }

func trimmed(cells []string) (out []string) {
	for _, c := range cells {
		out = append(out, strings.TrimSpace(html.UnescapeString(c)))
	}
	return out
}

// changed is what the line of an evaluation says has changed.
func changed(item compare.Item) string {
	var out []string
	for _, c := range item.Changes {
		out = append(out, c.Name+" "+three(c.A)+" → "+three(c.B))
	}
	for name, faults := range map[string][]string{"A": item.FaultsA, "B": item.FaultsB} { // at most one side has any here
		if len(faults) > 0 {
			out = append(out, fmt.Sprintf("%d faults in %s: %s", len(faults), name, strings.Join(slices.Compact(faults), ", ")))
		}
	}
	return strings.Join(out, "; ")
}

// marksOf are the marks of a page with what they lead to.
func marksOf(page string) (out []string) {
	for _, m := range regexp.MustCompile(`<a class="([a-z]+)" href="([^"]*)" aria-label="([^"]*)"><svg class="i ([a-z]+)"`).FindAllStringSubmatch(page, -1) {
		out = append(out, strings.Join(m[1:], " "))
	}
	return out
}

func marksIn(doc compare.Document) (out []string) {
	for _, item := range doc.Items {
		for i, side := range [][]compare.Rollout{item.RolloutsA, item.RolloutsB} {
			for _, r := range side {
				label := fmt.Sprintf("epoch %d: %s", r.Epoch, r.Status)
				if r.Score != nil {
					label += ", score " + three(r.Score)
				}
				out = append(out, strings.Join([]string{r.Status, "/runs/" + []string{doc.A.RunID, doc.B.RunID}[i] + "/rollouts/" + r.RolloutID, label, r.Status}, " "))
			}
		}
	}
	return out
}

// The states of a comparison: each says what it is, and what can be done.
func TestTheStatesOfAComparison(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	d := newDesk(t)
	better, worse, open, other := d.variedRun("better", "e"), d.variedRun("worse", "e"), d.variedRun("waits", "e"), d.variedRun("better", "f")
	for name, c := range map[string]struct {
		query     string
		status    int
		has, lack []string
	}{
		"nothing is paired": {"a=" + better + "&b=" + other + "&different=1", http.StatusUnprocessableEntity, []string{`role="alert"`, "their ids differ, A has e0, e1, ", " and B has f0, f1, "}, []string{"all the same</a>", "<table>"}},
		"the sets differ": {"a=" + better + "&b=" + other, http.StatusUnprocessableEntity, []string{`role="alert"`, "The eval sets differ", "<li class=\"u\">evaluation e11 is only in A</li>", "<li class=\"u\">evaluation f11 is only in B</li>",
			`href="?a=` + better + "&amp;b=" + other + `&amp;different=1">Compare what both have all the same</a>`}, []string{"--allow", "<table>"}},
		"no such run":    {"a=none&b=" + other, http.StatusUnprocessableEntity, []string{`role="alert"`, "none"}, []string{"all the same</a>"}},
		"no such agent":  {"a=" + better + ":none&b=" + worse, http.StatusUnprocessableEntity, []string{`role="alert"`, "has no agent &#34;none&#34;; it has one, two, large"}, []string{"all the same</a>"}},
		"no such figure": {"a=" + better + "&b=" + worse + "&by=speed", http.StatusUnprocessableEntity, []string{`role="alert"`, "got &#34;speed&#34;"}, []string{"all the same</a>"}},
		"B is open": {"a=" + better + "&b=" + open, http.StatusOK, []string{"still open", "Not paired: 1 scored in A only, 0 in B only, 0 in neither; 1 of these open or cancelled.", "Evaluations and evaluators are the same.",
			"With what is missing at its worst for B the difference is ", "Not scored on both sides: 1", "<li>23 pairs</li>"}, []string{`role="alert"`}},
		"the same":                       {"a=" + worse + "&b=" + worse, http.StatusOK, []string{"A and B are the same", "evalrun compare --aa " + worse}, []string{"<table>", ", p ", "undecided"}},
		"the same by another name":       {"a=" + other + ":one&b=latest:one", http.StatusOK, []string{"A and B are the same"}, []string{"<table>", ", p "}},
		"another agent of it is another": {"a=" + worse + ":one&b=" + worse + ":two,%20large", http.StatusOK, []string{"12 pairs", "evalrun compare " + worse + " --agents &#39;one,two, large&#39;"}, []string{"are the same:"}},
		"all that was asked for":         {"a=" + better + ":one&b=" + worse + "&margin=0.1&by=evaluator:x,score", http.StatusUnprocessableEntity, []string{"the agents differ"}, nil},
		"the command": {"a=" + better + "&b=" + worse + "&margin=0.1&by=evaluator:x,score", http.StatusOK, []string{"evalrun compare " + better + " " + worse + " --by evaluator:x --by score --margin 0.1",
			"/compare/outputs?a=" + better + "&amp;agent=one&amp;b=" + worse + "&amp;by=evaluator%3Ax%2Cscore&amp;evaluation=e7&amp;margin=0.1"}, nil},
	} {
		status, page := d.do("GET", "/compare?"+c.query, nil)
		_, page, _ = strings.Cut(page, "<main")
		page, _, _ = strings.Cut(page, "<footer")
		if status != c.status {
			t.Errorf("%s: %d", name, status)
		}
		for _, want := range c.has {
			if !strings.Contains(page, want) {
				t.Errorf("%s: the page lacks %q:\n%s", name, want, page)
			}
		}
		for _, not := range c.lack {
			if strings.Contains(page, not) {
				t.Errorf("%s: the page has %q:\n%s", name, not, page)
			}
		}
	}
	_, outputs := d.do("GET", "/compare/outputs?a="+better+"&agent=one&b="+worse+"&by=score&evaluation=e7&margin=0.1", nil)
	if want := `href="/compare?a=` + better + `&amp;b=` + worse + `&amp;by=score&amp;margin=0.1"`; !strings.Contains(outputs, want) {
		t.Errorf("the outputs do not lead back to %s", want)
	}
}

// bys are the figures that a document compares.
func bys(doc compare.Document) (out []string) {
	for _, row := range doc.Comparisons {
		out = append(out, row.By)
	}
	return out
}
