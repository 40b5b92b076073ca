package web_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"html"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/eval/compare"
	"github.com/evalrun/evalrun/eval/stats"
	"github.com/evalrun/evalrun/internal/testenv"
	"github.com/evalrun/evalrun/internal/web"
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
	if err := os.WriteFile(path, fmt.Appendf(nil, `{"version": "1.0", "id": "c", "name": "C", "tags": ["Nightly"], "agent": {"name": "billing-bot", "type": "function", "command": ["sh", "-c", "cat >/dev/null; echo '{\"say\":\"%s\"}'"]},
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

// A comparison as a file has what the page has, and leads nowhere else.
func TestAComparisonIsOneFile(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	d := newDesk(t)
	good, bad := d.scoredRun("yes"), d.scoredRun("no")
	var sides [2]compare.Side
	for i, id := range []string{good, bad} {
		if err := d.store.Report(t.Context(), id, runner.Variables{}, func(r *runner.Report) (err error) {
			sides[i], err = r.Side("")
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	margin := 0.02
	doc, err := runner.Compare(sides[0], sides[1], compare.Options{Settings: stats.DefaultSettings, NoWorseThan: &margin})
	if err != nil {
		t.Fatal(err)
	}
	var file, again bytes.Buffer
	if err := errors.Join(web.WriteComparison(&file, doc), web.WriteComparison(&again, doc)); err != nil || !bytes.Equal(file.Bytes(), again.Bytes()) {
		t.Fatal("the same comparison gives other bytes: ", err)
	}
	page := file.String()
	_, served := d.do("GET", "/compare?a="+good+"&b="+bad, nil)
	served = regexp.MustCompile(`<a class="u" href="/compare/outputs[^>]*>(.*?)</a>`).ReplaceAllString(served, `<span class="u">$1</span>`)
	served = regexp.MustCompile(`<a class="([a-z]*)" href="/runs/[^"]*/rollouts/[^"]*" (aria-label="[^"]*">.*?)</a>`).ReplaceAllString(served, `<span class="mark $1" role="img" $2</span>`)
	for _, part := range []string{`<div class="verdict">`, `<table><caption>`, `<h2 id="worse">Became worse: 6</h2>`} {
		_, want, _ := strings.Cut(served, part)
		want, _, _ = strings.Cut(want, "\n")
		if want == "" || !strings.Contains(page, part+want) {
			t.Errorf("the file lacks what the page has: %s%s", part, want)
		}
	}
	if want := "B is no worse than A by more than 0.02"; !strings.Contains(page, want) {
		t.Errorf("the file lacks %q", want)
	}
	leads := regexp.MustCompile(`(?:href|src|action)="([^"]*)"`)
	for _, link := range leads.FindAllStringSubmatch(page, -1) {
		if !strings.HasPrefix(link[1], "#") && link[1] != "data:," {
			t.Errorf("it leads to %s", link[1])
		}
	}
	for _, not := range []string{"<i>E", "<form", "%!", "A and B are the same"} {
		if strings.Contains(page, not) {
			t.Errorf("it has %q", not)
		}
	}
}

func TestTwoRunsAreCompared(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	d := newDesk(t)
	good, bad := d.scoredRun("yes"), d.scoredRun("no")
	for _, c := range []struct {
		path   string
		status int
		want   []string
	}{
		{"/compare", http.StatusOK, []string{"A, the baseline"}},
		{"/compare?a=" + good + "&b=" + bad, http.StatusOK, []string{"8 pairs", "regressed", "difference -0.500", "95 % interval", "a true difference of 0.", "Became worse: 6", "&lt;i&gt;E7&lt;/i&gt;"}},
		{"/compare?a=" + bad + "&b=" + good, http.StatusOK, []string{"improved", "Became better"}},
		{"/compare?a=" + good + "&b=" + good, http.StatusOK, []string{"A and B are the same", "evalrun compare --aa " + good}},
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

// An evaluation that became worse leads to what both runs have made of it, with what differs marked.
func TestOutputsStandSideBySide(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	d := newDesk(t)
	good, bad := d.scoredRun("yes"), d.scoredRun("no")
	_, page := d.do("GET", "/compare?a="+good+"&b="+bad, nil)
	if n := strings.Count(page, ">x 1.000 → 0.000<"); n != 6 {
		t.Errorf("%d evaluations say what has become worse", n)
	}
	m := regexp.MustCompile(`href="(/compare/outputs[^"]*)"`).FindStringSubmatch(page)
	if m == nil || !strings.Contains(page, "By score, pass rate, x: 6 became worse and 2 better, McNemar’s exact p ") {
		t.Fatal(page)
	}
	status, outputs := d.do("GET", html.UnescapeString(m[1]), nil)
	for _, want := range []string{"&#34;<del>yes</del>&#34;", "&#34;<ins>no</ins>&#34;", "/runs/" + good + "/rollouts/", "/runs/" + bad + "/rollouts/", "Epoch 1", "1.000", "0.000"} {
		if status != http.StatusOK || !strings.Contains(outputs, want) {
			t.Errorf("%d, lacks %q:\n%s", status, want, outputs[strings.Index(outputs, "<main"):])
		}
	}
	status, placed := d.do("GET", strings.Replace(html.UnescapeString(m[1]), "?", "/words?", 1), nil)
	for _, want := range []string{`["yes",true]`, `["no",true]`, `"status":"passed","score":"1.000","url":"/runs/` + good + `/rollouts/`, `"status":"failed","score":"0.000","url":"/runs/` + bad + `/rollouts/`, `"epoch":1`, `"more":0`} {
		if status != http.StatusOK || !strings.Contains(placed, want) {
			t.Errorf("%d, for the row, lacks %q: %s", status, want, placed)
		}
	}
	for _, q := range []string{"a=" + good + "&b=" + bad + "&evaluation=none", "a=none&b=" + bad + "&evaluation=e1", ""} {
		if status, page := d.do("GET", "/compare/outputs?"+q, nil); status != http.StatusNotFound || !strings.Contains(page, `role="alert"`) {
			t.Errorf("%s: %d %s", q, status, page)
		}
	}
}
