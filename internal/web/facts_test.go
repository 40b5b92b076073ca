package web_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/testenv"
	"github.com/evalrun/evalrun/internal/web"
	"github.com/evalrun/evalrun/runner"
	"github.com/evalrun/evalrun/schemas"
)

// factsSet has an evaluation for each way in which a rollout of it ends or waits.
const factsSet = `{"version": "1.0", "id": "s", "name": "S", "agent": {"type": "function", "command": ["sh", "agent.sh"]},
 "jobs": {"P": {"source": "http", "interval": "10ms", "start": {"url": "URL/jobs"}, "itemKey": ".id", "idempotencyHeader": "Key", "status": {"url": "URL/jobs/{itemKey}", "done": ".done"}}},
 "evaluators": [{"version": "1.0", "id": "c", "evaluatorTypeId": "uipath-exact-match", "evaluatorConfig": {"name": "Category", "targetOutputKey": "category"}}],
 "evaluations": [
  {"id": "wrong", "name": "Wrong", "tags": ["billing", "first line"], "inputs": {}, "evaluationCriterias": {"c": {"expectedOutput": {"category": "billing"}}}},
  {"id": "ask", "name": "Ask", "inputs": {"kind": "ask"}, "evaluationCriterias": {"c": {"expectedOutput": {"category": "account"}}}},
  {"id": "job", "name": "Job", "inputs": {"kind": "job"}, "evaluationCriterias": {"c": {"expectedOutput": {"category": "account"}}}}]}`

const factsAgent = `read -r line
case $line in
*'"resume":{'*) echo '{"category":"account"}' ;;
*'"kind":"ask"'*) echo '{"__interrupt__":[{"id":"q","value":{"type":"CreateTask","title":"Refund?"}}]}' ;;
*'"kind":"job"'*) echo '{"__interrupt__":{"name":"P","input_arguments":{}}}' ;;
*) echo '{"category":"account"}' ;;
esac
`

// factsDesk is a run of factsSet in a git repository, whose job has been started. While away is set,
// the source of the job cannot be asked.
func factsDesk(t *testing.T) (d *desk, away *atomic.Bool) {
	t.Helper()
	away = new(atomic.Bool)
	jobs := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPost:
			_, _ = fmt.Fprint(w, `{"id": "job-1"}`) // who is gone is told nothing
		case away.Load():
			http.Error(w, "closed for <b>maintenance</b>", http.StatusBadGateway)
		default:
			_, _ = fmt.Fprint(w, `{"done": false}`)
		}
	}))
	t.Cleanup(jobs.Close)
	dir := t.TempDir()
	for _, args := range [][]string{{"init", "-q"}, {"-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-q", "--allow-empty", "-m", "the set"}} {
		if out, err := exec.CommandContext(t.Context(), "git", append([]string{"-C", dir}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("%v %s", err, out)
		}
	}
	return newDeskOf(t, dir, strings.ReplaceAll(factsSet, "URL", jobs.URL), factsAgent), away
}

// resume asks once for everything that the run waits for.
func (d *desk) resume() {
	d.Helper()
	if _, err := d.store.Resume(d.Context(), d.runID, runner.RunOptions{}); err != nil {
		d.Fatal(err)
	}
}

// document is the results document that the run has now.
func (d *desk) document() (out schemas.Results) {
	d.Helper()
	var document bytes.Buffer
	if err := d.store.Report(d.Context(), d.runID, runner.Variables{}, func(r *runner.Report) error { return r.Write(&document, "json") }); err != nil {
		d.Fatal(err)
	}
	if err := json.Unmarshal(document.Bytes(), &out); err != nil {
		d.Fatal(err)
	}
	return out
}

// text is what a page says, without its marks.
func (d *desk) text(path string) string {
	d.Helper()
	code, page := d.do("GET", path, nil)
	if code != http.StatusOK {
		d.Fatal(path, code, page)
	}
	return html.UnescapeString(tagsOf.ReplaceAllString(page, ""))
}

// What pages show of a run beyond its scores is in its results document, too, and the same: each of the
// facts that were added to the store for the pages.
func TestWhatPagesShowIsInTheResultsDocument(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	d, away := factsDesk(t)
	d.resume()
	_, inbox := d.do("GET", "/inbox", nil)
	asked := d.trigger("ask").TriggerID
	if code, page := d.do("POST", "/triggers/"+asked+"/answer", d.form(inbox, asked, "verb", "approve", "confirm", "1")); code != http.StatusOK {
		t.Fatal(code, page)
	}
	away.Store(true)
	d.resume()
	d.resume()
	results := d.document()
	of := map[string]schemas.Rollout{}
	for _, one := range results.EvaluationSetResults {
		of[one.EvaluationID] = one
	}
	wrong, ask, job := of["wrong"], of["ask"], of["job"]
	if len(wrong.EvaluationRunResults) != 1 || len(ask.ResumedBy) != 1 || job.AgentExecutionOutput == nil || len(job.AgentExecutionOutput.Result.Triggers) != 1 {
		t.Fatalf("%+v", results)
	}
	result, answer, trigger := wrong.EvaluationRunResults[0].Result, ask.ResumedBy[0].Answers[0], job.AgentExecutionOutput.Result.Triggers[0]
	if result.StartedAt == nil || result.Comparison == nil || trigger.CheckedAt == nil {
		t.Fatalf("%+v %+v", result, trigger)
	}
	page := func(one schemas.Rollout) string { return "/runs/" + d.runID + "/rollouts/" + one.RolloutID }
	moment := func(t time.Time) string { return `<time datetime="` + t.Format("2006-01-02T15:04:05.000Z") + `">` }
	for name, fact := range map[string]struct {
		got, want any    // in the document
		path      string // of the page
		shown     string
		marks     bool // shown is looked for in the page as it is, not in its text
	}{
		"start of an evaluator":  {result.StartedAt.IsZero(), false, page(wrong), fmt.Sprintf(`<tr data-from="%d" data-to="%d"`, result.StartedAt.UnixMicro(), result.StartedAt.Add(time.Duration(result.EvaluationTime*1e9)).UnixMicro()), true},
		"structured expected":    {string(result.Comparison.Expected), `"billing"`, page(wrong), "expected billing", false},
		"structured actual":      {string(result.Comparison.Actual), `"account"`, page(wrong), "actual account", false},
		"last check":             {trigger.CheckedAt.Equal(*d.trigger("job").CheckedAt), true, "/triggers", `data-l="Last check">` + moment(*trigger.CheckedAt), true},
		"last check, rollout":    {trigger.CheckedAt.IsZero(), false, page(job), `<dt>Last check</dt><dd>` + moment(*trigger.CheckedAt), true},
		"last error":             {strings.Contains(trigger.LastError, "<b>maintenance</b>"), true, page(job), "Last error" + trigger.LastError, false},
		"last error, waiting":    {trigger.LastError, d.trigger("job").LastError, "/triggers", ": " + trigger.LastError, false},
		"errors in a row":        {trigger.Failures, 2, page(job), "(2 failures in a row)", false},
		"errors in a row, below": {trigger.Failures, 2, "/triggers", "2 failures: ", false},
		"checks":                 {d.trigger("job").Checks >= 3, true, "/triggers", fmt.Sprintf(`<td class="num" data-l="Checks">%d</td>`, d.trigger("job").Checks), true},
		"state of a source":      {trigger.Failures > 0, true, "/triggers", "1 trigger could not be asked", false},
		"who answered":           {answer.Person + " " + answer.By, "ada page", page(ask), ", by ada (page)", false},
		"tags":                   {strings.Join(wrong.Tags, ","), "billing,first line", page(wrong), `<span class="tag u">first line</span>`, true},
		"tags, list":             {strings.Join(wrong.Tags, ","), "billing,first line", "/runs/" + d.runID, `<span class="tag u">billing</span>`, true},
		"git commit":             {len(results.GitCommit), 40, "/runs/" + d.runID, "commit " + results.GitCommit[:12], false},
		"git commit, runs":       {len(results.GitCommit), 40, "/", "commit " + results.GitCommit[:10], false},
	} {
		t.Run(name, func(t *testing.T) {
			if fact.got != fact.want {
				t.Errorf("the document has %v, want %v", fact.got, fact.want)
			}
			shown := d.text(fact.path)
			if fact.marks {
				_, shown = d.do("GET", fact.path, nil)
			}
			if !strings.Contains(shown, fact.shown) {
				t.Errorf("the page lacks %q:\n%s", fact.shown, shown)
			}
		})
	}
}

// What models were used for, and how a score is made of those of the evaluators, is in the results
// document and on the pages.
func TestWhatPagesSayOfUsageAndWeights(t *testing.T) {
	t.Parallel()
	d := newDeskOf(t, t.TempDir(), `{"version": "1.0", "id": "s", "name": "S", "agent": {"type": "function", "command": ["sh", "agent.sh"]},
 "prices": {"small": {"input": 1, "output": 10}}, "thresholds": {"pass": 0.9},
 "evaluators": [{"id": "x", "evaluatorTypeId": "uipath-exact-match", "evaluatorConfig": {"name": "Exact", "targetOutputKey": "say"}},
  {"id": "y", "weight": 2, "evaluatorTypeId": "uipath-exact-match", "evaluatorConfig": {"name": "<b>Heavy", "targetOutputKey": "say"}}],
 "evaluations": [{"id": "a", "name": "A", "tags": ["first line"], "inputs": {}, "evaluationCriterias": {"x": {"expectedOutput": {"say": "no"}}, "y": {"expectedOutput": {"say": "yes"}}}}]}`,
		`echo '{"say": "yes", "__usage__": {"model": "small", "inputTokens": 20000, "outputTokens": 1200}}'
`)
	results := d.document()
	one := results.EvaluationSetResults[0]
	if one.Usage == nil || one.Usage.Total == nil || one.Usage.Total.Cost == nil || one.Score == nil {
		t.Fatalf("%+v", one)
	}
	evaluators, used := results.Statistics.PerAgent()[0].Evaluators, *one.Usage.Total
	if used.InputTokens != 20000 || used.OutputTokens != 1200 || fmt.Sprintf("%.4f", *used.Cost) != "0.0320" || evaluators[1].Weight != 2 || results.Statistics.Thresholds.Pass != 0.9 || fmt.Sprintf("%.3f", *one.Score) != "0.667" {
		t.Errorf("the document has %+v, %+v, %v", used, evaluators[1], *one.Score)
	}
	if tags := results.Statistics.PerAgent()[0].Tags; len(tags) != 1 || tags[0].Tag != "first line" || fmt.Sprintf("%.3f %.0f %d", *tags[0].Score.Mean, *tags[0].PassRate.Mean, tags[0].Score.N) != "0.667 0 1" {
		t.Errorf("the document has %+v", tags)
	}
	const row = `<tr data-tag="first line"><th scope="row" class="u">first line</th><td class="num">0.667</td><td class="num">0.000</td><td class="num">1</td></tr>`
	if _, page := d.do("GET", "/runs/"+d.runID, nil); !strings.Contains(page, row) {
		t.Error("the page lacks the scores of the tag", page)
	}
	for path, wants := range map[string][]string{
		"/runs/" + d.runID: {"tokens: 20,000 input, 1,200 output", "cost: $0.032", "21,200$0.032$0.032"}, // W12: columns
		"/runs/" + d.runID + "/rollouts/" + one.RolloutID: {"tokens: 20,000 input, 1,200 output; cost: $0.032", "Weights other than 1: <b>Heavy 2.", "A rollout passes with a score of 0.900 or more."},
	} {
		shown := d.text(path)
		for _, want := range wants {
			if !strings.Contains(shown, want) {
				t.Errorf("the page lacks %q:\n%s", want, shown)
			}
		}
	}
}

// A check of which nothing has come leaves the revision of a run. The document says when it was, and the
// report file, which is the same for the same revision, does not.
func TestACheckWithoutNewsLeavesTheReportFile(t *testing.T) {
	t.Parallel()
	d, _ := factsDesk(t)
	d.resume()
	checked := func() (time.Time, int64) {
		results := d.document()
		for _, one := range results.EvaluationSetResults {
			if one.EvaluationID == "job" {
				return *one.AgentExecutionOutput.Result.Triggers[0].CheckedAt, results.Revision
			}
		}
		t.Fatal("there is no such rollout")
		panic("unreachable")
	}
	first, revision := checked()
	report := d.report(web.ReportOptions{Full: true})
	d.resume()
	second, same := checked()
	if !second.After(first) || same != revision {
		t.Errorf("checked at %v, then at %v; revision %d, then %d", first, second, revision, same)
	}
	if d.report(web.ReportOptions{Full: true}) != report {
		t.Error("the same revision gives other bytes")
	}
}
