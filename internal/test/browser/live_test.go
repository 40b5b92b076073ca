package browser

import (
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// Two browsers see a run end that goes on elsewhere, without loading the page again, over a server that
// is killed and started again.
func TestLiveOverAServerThatComesAgain(t *testing.T) {
	w := tickets(t)
	port := freePort(t)
	var both []*browser
	var kill func()
	for range 2 {
		if kill != nil {
			kill()
		}
		var link string
		link, kill = w.view(port)
		b := newBrowser(t)
		b.open(link, "/runs/desk")
		b.do(chromedp.Evaluate(`window.here = true`, nil))
		both = append(both, b)
	}
	for _, b := range both {
		b.until(`document.querySelector('#live').textContent.includes('live') && document.querySelector('#n-suspended').textContent === '4'`)
	}
	kill()
	for _, b := range both {
		b.until(`document.querySelector('#live').textContent.includes('not connected')`)
	}
	for _, id := range w.waiting("desk") {
		w.evalrun(0, "approve", "-q", id)
	}
	w.evalrun(3, "resume", "-q", "desk")
	w.view(port)
	for _, b := range both {
		b.until(`document.querySelector('#n-suspended').textContent === '0' && document.querySelector('#live').textContent.includes('final') && window.here`)
		if n := ask[int](b, `document.querySelectorAll('#rollouts a.suspended').length`); n != 0 {
			t.Errorf("%d cells are still suspended", n)
		}
		b.forget("net::ERR_CONNECTION_REFUSED") // it may have asked while there was no server
		b.forget("net::ERR_INCOMPLETE_CHUNKED_ENCODING")
		b.forget("net::ERR_CONNECTION_RESET") // or at the moment of the kill
		b.forget("net::ERR_EMPTY_RESPONSE")
	}
}

// What waits is answered in one browser. The pages of its run and of its rollout in others tell that it
// goes on, without being loaded again.
func TestAnAnswerIsSeenOnOpenPages(t *testing.T) {
	w := tickets(t)
	links, _ := w.serve("serve", "--listen", "127.0.0.1:0")
	at, b := base(t, links[0]), newBrowser(t)
	b.open(links[0], "/runs/desk")
	b.do(chromedp.Evaluate(`window.here = true`, nil))
	rollout, inbox := b.another(), b.another()
	rollout.do(chromedp.Navigate(at+w.rollout("ask")), chromedp.WaitReady("html[data-ready]"), chromedp.Evaluate(`window.here = true`, nil))
	inbox.do(chromedp.Navigate(at+"/inbox"), chromedp.WaitReady("html[data-inbox=ready]"))
	for _, page := range []*browser{b, rollout} {
		page.until(`document.querySelector('#live').textContent.includes('live')`)
	}
	b.until(`document.querySelector('#n-suspended').textContent === '4'`)
	inbox.do(chromedp.Click(`article.ask input[name=all]`), chromedp.Click(`article.ask button.primary`))
	b.until(`document.querySelector('#n-suspended').textContent === '0' && document.querySelectorAll('#rollouts a.passed').length === 12 && window.here`)
	rollout.until(`document.querySelector('#newer').textContent.includes('passed') && document.querySelector('#status').textContent === 'passed' && document.querySelector('#score').textContent === '1.000' && window.here`)
	if text := rollout.text("#newer"); !strings.Contains(text, "Load the page again") {
		t.Errorf("the page of the rollout says %q", text)
	}
}

// freePort is a port on which nobody listens.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	_ = l.Close()
	return port
}

// W2: an open page of a run that has ended follows nothing. When it is looked at again it shows that the run
// was scored again, without being loaded.
func TestARunIsScoredAgainWhileItsPageIsOpen(t *testing.T) {
	const set = `{"version": "1.0", "id": "s", "name": "S", "agent": {"type": "function", "command": ["sh", "-c", "cat >/dev/null; echo '{\"category\": \"account\"}'"]},
 "evaluators": [{"version": "1.0", "id": "c", "evaluatorTypeId": "uipath-exact-match", "evaluatorConfig": {"name": "Category", "targetOutputKey": "category"}}],
 "evaluations": [{"id": "a", "name": "A", "inputs": {}, "evaluationCriterias": {"c": {"expectedOutput": {"category": "account"}}}}, {"id": "b", "name": "B", "inputs": {}, "evaluationCriterias": {"c": {"expectedOutput": {"category": "account"}}}}]}`
	w := newWorld(t, map[string]string{"set.json": set, "other.json": `{"version": "1.0", "id": "c", "evaluatorTypeId": "uipath-exact-match", "evaluatorConfig": {"name": "Category", "targetOutputKey": "category", "negated": true}}`})
	w.evalrun(0, "run", "-q", "--run-id", "done", "set.json")
	link, _ := w.view("0")
	b := newBrowser(t)
	b.open(link, "/")
	b.do(chromedp.ActionFunc(onEveryPage(`let hidden = false; Object.defineProperty(document, 'hidden', {get: () => hidden}); window.sleep = yes => { hidden = yes; document.dispatchEvent(new Event('visibilitychange')); };
 const Real = EventSource; window.streams = []; window.EventSource = class extends Real { constructor(...all) { super(...all); streams.push(this); } };`)),
		chromedp.Navigate(base(t, link)+"/runs/done"), chromedp.WaitReady("html[data-ready]"), chromedp.Evaluate(`window.here = true`, nil))
	b.until(`document.querySelector('#live').textContent.includes('final')`)
	b.do(chromedp.Evaluate(`sleep(true)`, nil))
	passed := ask[int](b, `+document.querySelector('#n-passed').textContent`)
	w.evalrun(0, "score", "-q", "done", "--evaluators", "other.json")
	b.do(chromedp.Evaluate(`sleep(false)`, nil))
	b.until(`document.querySelector('#newer').textContent === 'This run was scored again: show' && window.here`)
	if n := ask[int](b, `streams.length`); n != 0 {
		t.Errorf("%d streams follow a run that has ended", n)
	}
	if n := ask[int](b, `document.querySelectorAll('#rollouts a.failed').length`); n != passed || n == 0 || b.text("#n-failed") != strconv.Itoa(n) || b.text("#n-passed") != "0" {
		t.Errorf("%d cells have failed, %d had passed, the counts are %s and %s", n, passed, b.text("#n-failed"), b.text("#n-passed"))
	}
	if bar := ask[string](b, `document.querySelector('#bar').getAttribute('aria-label')`); bar != b.text("#n-failed")+" failed" {
		t.Errorf("the bar says %q", bar)
	}
	b.do(chromedp.Click("#newer a"))
	b.until(`!window.here && document.documentElement.dataset.ready && document.querySelector('#rescored').innerText.includes(' ago') && document.querySelector('#newer').hidden`)
}

// What belongs to the list now is announced and does not move what is there: at once the first time, and
// then at most each ten seconds.
func TestWhatIsNewIsAnnouncedAtMostEachTenSeconds(t *testing.T) {
	w := tickets(t)
	link, _ := w.view("0")
	b := newBrowser(t)
	b.open(link, "/")
	b.do(chromedp.ActionFunc(onEveryPage(`window.skew = 0; const now = Date.now; Date.now = () => now() + skew;
 window.timers = []; const later = setTimeout; window.setTimeout = (f, ms, ...more) => ms > 5000 && ms <= 10000 ? timers.push(f) : later(f, ms, ...more);`)),
		chromedp.Navigate(base(t, link)+"/runs/desk?status=passed&view=rollouts"), chromedp.WaitReady("html[data-ready]"))
	b.until(`document.querySelector('#live').textContent.includes('live')`)
	const rows = `[...document.querySelectorAll('#rollouts tbody tr')].map(r => r.id).join()`
	before := ask[string](b, rows)
	for i, id := range w.waiting("desk")[:3] {
		w.evalrun(0, "approve", "-q", id)
		w.evalrun(75, "resume", "-q", "desk")
		b.until(`document.querySelector('#n-suspended').textContent === '` + strconv.Itoa(3-i) + `'`)
		b.until(`document.querySelector('#newer').textContent === '1 new: show'`)
	}
	if role := ask[string](b, `document.querySelector('#newer').getAttribute('role')`); role != "status" {
		t.Errorf("it is announced as %q", role)
	}
	b.until(`timers.length === 1`)
	b.do(chromedp.Evaluate(`skew = 10000; timers[0]()`, nil))
	b.until(`document.querySelector('#newer').textContent === '3 new: show'`)
	if after := ask[string](b, rows); after != before {
		t.Errorf("the rows were %s and are %s", before, after)
	}
	if bar := ask[string](b, `document.querySelector('#bar').getAttribute('aria-label')`); !strings.Contains(bar, "1 suspended") {
		t.Errorf("the bar says %q", bar)
	}
	b.do(chromedp.Click("#newer a"))
	b.until(`document.documentElement.dataset.ready && document.querySelectorAll('#rollouts tbody tr').length === ` + strconv.Itoa(strings.Count(before, ",")+4))
}
