package browser

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// A real browser without JavaScript answers a question on the page of its rollout: it is asked whether the
// answer is to be sent, and told that it was.
func TestAQuestionIsAnsweredWithoutScript(t *testing.T) {
	w := tickets(t)
	b, at := open(t, w)
	b.do(emulation.SetScriptExecutionDisabled(true), chromedp.Navigate(at+w.rollout("ask")), chromedp.Click(`button[value=approve]`), chromedp.WaitVisible(`input[name=confirm] ~ .acts button`, chromedp.ByQuery))
	if text := b.text("main"); !strings.Contains(text, "To this rollout is sent, exactly:") || !strings.Contains(text, `"approved": true`) {
		t.Errorf("one is asked:\n%s", text)
	}
	b.do(chromedp.Click(`.acts button.primary`), chromedp.WaitNotPresent(`.acts button`, chromedp.ByQuery))
	if text := b.text("main"); !strings.Contains(text, "Approved.") {
		t.Errorf("one is told:\n%s", text)
	}
}

// refusedAnswer sends a form as a browser without JavaScript does, with data that is no JSON.
const refusedAnswer = `{ const f = document.querySelector('form[data-answer]'), v = document.createElement('input'); v.name = 'verb'; v.value = 'approve'; f.append(v); f.elements.data.value = '{'; HTMLFormElement.prototype.submit.call(f); }`

// A wait that is open grows on a page that is connected, and stands still on one that is not.
func TestAnOpenWaitGrows(t *testing.T) {
	w := sharedTickets(t)
	b, at := open(t, w)
	b.do(chromedp.ActionFunc(func(ctx context.Context) error {
		_, err := page.AddScriptToEvaluateOnNewDocument(`window.setInterval = f => { window.tick = f; }; performance.now = () => 7.2e6;`).Do(ctx)
		return err
	}), chromedp.Navigate(at+w.rollout("ask")), chromedp.WaitReady("html[data-ready]"))
	const shown = `[...document.querySelectorAll('[data-grows]')].map(n => n.textContent)`
	before := ask[[]string](b, shown)
	b.until(`document.querySelector('#live').textContent.includes('live')`)
	b.do(chromedp.Evaluate(`tick()`, nil))
	after := ask[[]string](b, shown)
	if len(before) == 0 || len(after) != len(before) {
		t.Fatal(before, after)
	}
	for i := range after {
		if !strings.Contains(after[i], "2 h ") || strings.Contains(before[i], "2 h ") {
			t.Errorf("two hours later %q is %q", before[i], after[i])
		}
	}
}

// What a page comes to when it is used violates nothing that axe-core knows, and passes the audit, in both
// themes, from wide to 320 pixels, in forced colours too: errors, refused answers, rows and dialogs that
// are open, forms on the page of a rollout.
func TestAccessibilityOfWhatPagesComeTo(t *testing.T) {
	source := axe(t)
	w := tickets(t) // one of its questions is answered
	w.evalrun(0, "report", "desk", "--format", "html", "-o", "states.html")
	b, at := open(t, w)
	stranger := newBrowser(t) // has no cookie
	report, questions := "file://"+w.dir+"/states.html", w.rolloutsOf("desk", "ask-3")
	asks, other := at+"/runs/desk/rollouts/"+questions[0], at+"/runs/desk/rollouts/"+questions[1]
	for _, state := range []struct {
		name, url string
		// does is done on the page, until holds then.
		does, until string
	}{
		{"a form for a token", at + "/", "", ""},
		{"a rollout that is not there", at + "/runs/desk/rollouts/none", "", ""},
		{"a file that is not there", at + w.rollout("fault") + "/files/none", "", ""},
		{"a question on the page of its rollout", asks, `document.querySelector('#asks details').open = true`, ""},
		{"data that are no JSON", asks, `{ const d = document.querySelector('[name=data]'); d.closest('details').open = true; d.value = '{'; d.dispatchEvent(new Event('input', {bubbles: true})); }`, `document.querySelector('.preview.failed')`},
		{"an answer that can be taken back", asks, `document.querySelector('button[value=deny]').click()`, `document.querySelector('.outcome button')`},
		{"a refused answer", other, refusedAnswer, `document.querySelector('main p[role=alert]')?.textContent.includes('expected one JSON document') && document.documentElement.dataset.ready`},
		{"a row that is open", at + "/runs/desk?view=rollouts", `document.querySelectorAll('button.open')[5].click()`, `document.querySelector('tr.opened b')`},
		{"the list of keys", at + "/runs/desk", `document.querySelector('#help').click()`, `document.querySelector('#keys').open`},
		{"a row of a report that is open", report + "#?view=rollouts", `document.querySelectorAll('button.open')[5].click()`, `document.querySelector('tr.opened b')`},
		{"a rollout of a report", report, `document.querySelectorAll('#rollouts tbody th a')[1].click()`, `document.querySelector('#detail').open && document.querySelector('#detail pre')`},
		{"a rollout that a report has not", report + "#r/none", "", `document.querySelector('#detail').open`},
	} {
		on := b
		if state.name == "a form for a token" {
			on = stranger
		}
		on.do(page.SetBypassCSP(true), emulation.SetEmulatedMedia(), chromedp.EmulateViewport(1400, 1000), chromedp.Navigate("about:blank"), chromedp.Navigate(state.url), chromedp.WaitReady("html[data-ready]"))
		if state.does != "" {
			on.do(chromedp.Evaluate(state.does, nil))
		}
		if state.until != "" {
			on.until(`!!(` + state.until + `)`)
		}
		on.isAccessible(source, state.name)
		on.until(`!document.querySelector('.outcome button')`) // then it is sent, and the page may be left
	}
	b.forget("status of 4")
	stranger.forget("status of 4")
}

// isAccessible says what is wrong with a page as it stands, and keeps pictures of it under a name.
func (b *browser) isAccessible(source, name string) {
	b.Helper()
	b.do(chromedp.Evaluate(source+`; 0`, nil))
	for _, theme := range []string{"light", "dark", "forced"} {
		feature := &emulation.MediaFeature{Name: "prefers-color-scheme", Value: theme}
		if theme == "forced" {
			feature = &emulation.MediaFeature{Name: "forced-colors", Value: "active"}
		}
		for _, width := range []int64{1400, 700, 320} {
			b.do(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{feature}), chromedp.EmulateViewport(width, 1000),
				chromedp.Evaluate(`scrollTo(0, 0)`, nil)) // what is scrolled under the header is hidden by nobody's fault
			var found []string
			b.do(chromedp.Evaluate(violations, &found, awaited))
			for _, text := range append(found, ask[[]string](b, audit)...) {
				b.Errorf("%s, %s, %d wide: %s", name, theme, width, text)
			}
			if width != 700 {
				b.screenshot(fmt.Sprintf("state-%s-%s-%d", name, theme, width))
			}
		}
	}
}

// An evaluator with a long name does not make the page of a run wider than the window.
func TestALongNameOfAnEvaluatorFitsANarrowPage(t *testing.T) {
	name := strings.Repeat("Faithfulness to the knowledge base, ", 2)
	w := newWorld(t, map[string]string{"set.json": `{"version": "1.0", "id": "s", "name": "S", "agent": {"type": "function", "command": ["sh", "-c", "echo '{\"say\":\"yes\"}'"]},
 "evaluators": [{"id": "x", "evaluatorTypeId": "uipath-exact-match", "evaluatorConfig": {"name": "` + name + `", "targetOutputKey": "say"}}],
 "evaluations": [{"id": "a", "name": "A", "inputs": {}, "evaluationCriterias": {"x": {"expectedOutput": {"say": "yes"}}}}]}`})
	w.evalrun(0, "run", "-q", "--run-id", "desk", "set.json")
	b, at := open(t, w)
	b.do(chromedp.Navigate(at+"/runs/desk"), chromedp.WaitReady("html[data-ready]"))
	for _, width := range []int64{400, 320} {
		b.do(chromedp.EmulateViewport(width, 900))
		if wide := ask[int64](b, `document.documentElement.scrollWidth`); wide > width {
			t.Errorf("at %d pixels the page is %d wide", width, wide)
		}
	}
}
