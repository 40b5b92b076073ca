package browser

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

const scored = `{"version": "1.0", "id": "s", "name": "HOSTILE", "agent": {"type": "function", "command": ["sh", "-c", "sed 's/.*\"input\"://; s/,\"resume\".*//'"]},
 "evaluators": [{"id": "exact", "evaluatorTypeId": "uipath-exact-match", "evaluatorConfig": {"targetOutputKey": "say"}}, {"id": "other", "evaluatorTypeId": "uipath-contains", "evaluatorConfig": {"targetOutputKey": "say"}}],
 "evaluations": [
  {"id": "good", "name": "Good", "inputs": {"say": "yes"}, "evaluationCriterias": {"exact": {"expectedOutput": {"say": "yes"}}, "other": {"searchText": "y"}}},
  {"id": "bad", "name": "HOSTILE", "inputs": {"say": "HOSTILE"}, "evaluationCriterias": {"exact": {"expectedOutput": {"say": "HOSTILE?"}}, "other": {"searchText": "y"}}}]}`

// scoredRun is a run of which half has failed.
func scoredRun(t *testing.T) *world {
	t.Helper()
	quoted, err := json.Marshal(strings.NewReplacer(`\u202e`, "\u202e", `\u001b`, "\x1b").Replace(hostile))
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, map[string]string{"set.json": strings.ReplaceAll(scored, "HOSTILE", strings.Trim(string(quoted), `"`))})
	w.evalrun(0, "run", "-q", "--run-id", "r", "set.json")
	return w
}

func (b *browser) isUnharmed() {
	b.Helper()
	var harmed bool
	b.do(chromedp.Evaluate(`!!window.pwned || !!document.querySelector('main img, main script, dialog img, dialog script') || /[\u001b\u202e]/.test(document.body.innerText)`, &harmed))
	if harmed {
		b.Error("what an agent wrote acts on the page")
	}
}

func TestAReportIsOneFileThatNeedsNothingElse(t *testing.T) {
	w := scoredRun(t)
	w.evalrun(0, "report", "r", "--format", "html", "-o", "report.html")
	w.evalrun(0, "report", "r", "--format", "html", "-o", "again.html")
	w.evalrun(0, "report", "r", "--format", "html", "--redact-io", "-o", "redacted.html")
	w.evalrun(0, "report", "r", "--format", "html", "--failed-only", "-o", "failed.html")
	if one, again := w.read("report.html"), w.read("again.html"); one != again {
		t.Error("the same revision gives other bytes")
	}
	b := newBrowser(t)
	b.do(chromedp.Navigate("file://"+filepath.Join(w.dir, "report.html")), chromedp.WaitVisible("main h1"))
	b.until(`document.documentElement.dataset.ready === 'yes'`)
	b.screenshot("report")
	b.isUnharmed()
	b.do(chromedp.Click(`#rollouts tbody tr:last-child a`))
	b.until(`document.querySelector('#detail').open && document.querySelector('#detail').innerText.includes('"say": "yes"')`)
	b.do(chromedp.Click(`#detail button`))
	b.until(`!document.querySelector('#detail').open`)
	b.do(chromedp.Click(`a[data-status="failed"]`))
	b.until(`location.hash === '#?status=failed' && document.querySelectorAll('#rollouts tbody tr').length === 1`)
	b.do(chromedp.Click(`#rollouts tbody tr:first-child a`))
	b.until(`document.querySelector('#detail').innerText.includes('expected') && document.querySelector('#detail').innerText.includes('U+202E')`)
	b.screenshot("report-detail")
	b.isUnharmed()
	b.do(chromedp.Navigate("about:blank"), chromedp.Navigate("file://"+filepath.Join(w.dir, "report.html")+"#?status=failed"))
	b.until(`document.querySelectorAll('#rollouts tbody tr').length === 1`)

	b.do(chromedp.Navigate("file://" + filepath.Join(w.dir, "redacted.html")))
	b.until(`document.documentElement.dataset.ready === 'yes'`)
	b.do(chromedp.Click(`#rollouts tbody tr:last-child a`))
	b.until(`document.querySelector('#detail').open`)
	if text := b.text("#detail") + b.text("main"); strings.Contains(text, "yes") || strings.Contains(text, "expected \"") {
		t.Errorf("the redacted report says:\n%s", text)
	}
	b.do(chromedp.Navigate("file://" + filepath.Join(w.dir, "failed.html")))
	b.until(`document.documentElement.dataset.ready === 'yes'`)
	b.do(chromedp.Click(`#rollouts tbody tr:last-child a`))
	b.until(`document.querySelector('#detail').innerText.includes('were left out')`)
}

func (w *world) read(name string) string {
	w.Helper()
	data, err := os.ReadFile(filepath.Join(w.dir, name))
	if err != nil {
		w.Fatal(err)
	}
	return string(data)
}

// The file of 10,000 rollouts: its size and its elements, how soon it is there, and how long a filter takes.
// Times are held against the limits only where EVALRUN_LIMITS is set.
func TestTheReportOfTenThousandRollouts(t *testing.T) {
	w := scoredRun(t)
	var document map[string]any
	if err := json.Unmarshal([]byte(w.read(".evalrun/runs/r/results.json")), &document); err != nil {
		t.Fatal(err)
	}
	few := document["evaluationSetResults"].([]any)
	var many []any
	for i := range 10_000 {
		one := map[string]any{}
		for key, value := range few[i%2].(map[string]any) {
			one[key] = value
		}
		id := fmt.Sprintf("evaluation-%04d", i/2)
		one["evaluationId"], one["evaluationName"], one["epoch"] = id, "Evaluation "+id, i%2
		one["rolloutId"] = fmt.Sprintf("00000000-0000-4000-8000-%012d", i*7919)
		one["inputs"] = map[string]any{"say": fmt.Sprintf("text %d of many", i*i)}
		many = append(many, one)
	}
	document["evaluationSetResults"] = many
	data, err := json.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(w.dir, "large.json"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	w.evalrun(0, "report", "large.json", "--format", "html", "-o", "large.html")
	size := len(w.read("large.html"))
	b := newBrowser(t)
	best := struct{ Ready, Paint, Filter float64 }{1e9, 1e9, 1e9}
	for range 3 {
		b.do(chromedp.Navigate("about:blank"), chromedp.Navigate("file://"+filepath.Join(w.dir, "large.html")))
		b.until(`document.documentElement.dataset.ready === 'yes' && performance.getEntriesByName('first-contentful-paint').length === 1`)
		var ready, paint, filter float64
		b.do(chromedp.Evaluate(`performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd`, &ready),
			chromedp.Evaluate(`performance.getEntriesByName('first-contentful-paint')[0].startTime`, &paint))
		b.do(chromedp.Click(`a[data-status="failed"]`))
		b.until(`document.querySelector('#found').textContent === '5000 of 10000 rollouts'`)
		b.do(chromedp.Click(`a[data-status="passed"]`))
		b.until(`document.querySelector('#found').textContent === '10000 of 10000 rollouts'`)
		b.do(chromedp.Evaluate(`Math.min(...performance.getEntriesByName('list').map(e => e.duration))`, &filter))
		best.Ready, best.Paint, best.Filter = min(best.Ready, ready), min(best.Paint, paint), min(best.Filter, filter)
	}
	var nodes int
	b.do(chromedp.Evaluate(`document.querySelectorAll('*').length`, &nodes))
	t.Logf("%.2f MB, %d elements; ready after %.0f ms, painted after %.0f ms, filtered in %.0f ms", float64(size)/1e6, nodes, best.Ready, best.Paint, best.Filter)
	if nodes > 5000 || size > 10<<20 {
		t.Error("that is more than 5,000 elements or 10 MB")
	}
	if os.Getenv("EVALRUN_LIMITS") != "" && (best.Ready > 1000 || best.Paint > 1000 || best.Filter > 50) {
		t.Error("that is more than a second or 50 ms")
	}
	b.do(chromedp.Click(`#rollouts tbody tr:first-child a`))
	b.until(`document.querySelector('#detail').innerText.includes('text 1 of many')`) // the first one that has a reason
}

// shownDetail is the dialog of a rollout as its reader sees it.
type shownDetail struct {
	Parts map[string]string
	Rows  [][]string
}

const dialogShows = `(() => { const parts = {}; for (const h of document.querySelectorAll('#detail h3')) parts[h.textContent] = h.nextElementSibling.textContent;
 return {parts, rows: [...document.querySelectorAll('#detail tbody tr')].map(r => [...r.children].map(c => c.textContent))}; })()`

// The file, opened from the disk, has of every rollout what the store has: input, criteria, output,
// scores, clocks and faults. Each row opens in its place as well, by key, and says the same.
func TestEveryDetailOfAReportIsThatOfTheStore(t *testing.T) {
	w := sharedTickets(t)
	w.evalrun(0, "report", "desk", "--format", "html", "-o", "every.html")
	var results struct {
		All []struct {
			RolloutID, Status    string
			Inputs               json.RawMessage
			Criteria             json.RawMessage
			Error                *struct{ Category string }
			EvaluationRunResults []struct {
				EvaluatorName string
				Result        struct{ Score *float64 }
			}
			AgentExecutionOutput *struct {
				Result struct {
					Output json.RawMessage
					Error  any
				}
			}
		} `json:"evaluationSetResults"`
	}
	if err := json.Unmarshal([]byte(w.evalrun(0, "show", "--json", "desk")), &results); err != nil {
		t.Fatal(err)
	}
	b := newBrowser(t)
	b.do(chromedp.Navigate("file://"+filepath.Join(w.dir, "every.html")+"#?view=rollouts"), chromedp.WaitReady("html[data-ready]"))
	b.until(fmt.Sprintf(`document.querySelectorAll('#rollouts button.open').length === %d`, len(results.All)))
	same := func(id, title, shown string, stored json.RawMessage) {
		t.Helper()
		var one, other any
		if len(stored) == 0 || string(stored) == "null" {
			if shown != "" {
				t.Errorf("%s: its %s is %q, the store has none", id, title, shown)
			}
			return
		}
		if json.Unmarshal([]byte(shown), &one) != nil || json.Unmarshal(stored, &other) != nil || !reflect.DeepEqual(one, other) {
			t.Errorf("%s: its %s is %q, the store has %s", id, title, shown, stored)
		}
	}
	for _, one := range results.All {
		id := one.RolloutID
		b.do(chromedp.Evaluate(fmt.Sprintf(`location.hash = '#r/%s'`, id[len(id)-12:]), nil))
		b.until(fmt.Sprintf(`document.querySelector('#detail').open && document.querySelector('#detail').innerText.includes('rollout %s')`, id))
		shown := ask[shownDetail](b, dialogShows)
		same(id, "input", shown.Parts["Input"], one.Inputs)
		same(id, "criteria", shown.Parts["Criteria"], one.Criteria)
		if x := one.AgentExecutionOutput; x != nil && one.Status == "completed" {
			same(id, "output", shown.Parts["Output"], x.Result.Output)
		}
		if len(shown.Rows) != len(one.EvaluationRunResults) || shown.Parts["Clocks"] == "" || one.Error != nil && !strings.Contains(shown.Parts["Why"], one.Error.Category) {
			t.Errorf("%s shows %+v", id, shown)
			continue
		}
		for i, e := range one.EvaluationRunResults {
			want := "–"
			if e.Result.Score != nil {
				want = fmt.Sprintf("%.3f", *e.Result.Score)
			}
			if row := shown.Rows[i]; row[0] != e.EvaluatorName || row[1] != want {
				t.Errorf("%s: %q, the store has %s %s", id, row, e.EvaluatorName, want)
			}
		}
		why := shown.Parts["Why"]
		b.do(chromedp.Evaluate(`document.querySelector('#rollouts tbody').dataset.old = 'yes'; document.querySelector('#detail').close()`, nil))
		b.until(`!location.hash.startsWith('#r/') && !document.querySelector('#rollouts tbody[data-old]')`) // the list is made anew
		row := fmt.Sprintf(`document.querySelector('#rollouts tr:has(a[href="#r/%s"])')`, id[len(id)-12:])
		b.do(chromedp.Evaluate(row+`.querySelector('button.open').click()`, nil))
		b.until(row + `.nextElementSibling?.querySelector('b')?.textContent.includes('epoch')`)
		if text := ask[string](b, row+`.nextElementSibling.querySelector('pre')?.textContent ?? ''`); text != why {
			t.Errorf("%s, opened in its place, says %q, and its dialog %q", id, text, why)
		}
		b.do(chromedp.Evaluate(row+`.querySelector('button.open').click()`, nil))
	}
	b.do(chromedp.KeyEvent("j"), chromedp.KeyEvent("x"))
	b.until(`document.querySelectorAll('tr.opened').length === 1`)
	b.screenshot("report-row")
	b.isUnharmed()
}
