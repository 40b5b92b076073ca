package browser

import (
	"context"
	"database/sql"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// spoil changes what the store has, behind the back of everybody.
func (w *world) spoil(query string, args ...any) {
	w.Helper()
	db, err := sql.Open("sqlite", filepath.Join(w.dir, ".evalrun", "store.db"))
	if err != nil {
		w.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(w.Context(), query, args...); err != nil {
		w.Fatal(err)
	}
}

// says goes to a page that is only to say something, and from which one gets on.
func (b *browser) says(url, text string) {
	b.Helper()
	b.do(chromedp.Navigate(url), chromedp.WaitReady("html[data-ready]"))
	if got := b.text("main"); !strings.Contains(got, text) {
		b.Errorf("%s says %q, and not %q", url, got, text)
	}
	if ask[int](b, `document.querySelectorAll('header a[href], main a[href]').length`) == 0 {
		b.Errorf("%s leads nowhere", url)
	}
	for _, wrong := range ask[[]string](b, audit) {
		b.Errorf("%s: %s", url, wrong)
	}
}

// Somebody looks at a run while it is removed: the page says so where it is, its links say so too, and
// the list goes on without it.
func TestARunIsPrunedWhileItIsRead(t *testing.T) {
	w := tickets(t)
	w.evalrun(75, "run", "-q", "--run-id", "other", "set.json")
	b, at := open(t, w)
	rollout, list := b.another(), b.another()
	rollout.do(chromedp.Navigate(at+w.rollout("ask")), chromedp.WaitReady("html[data-ready]"))
	list.do(chromedp.Navigate(at+"/"), chromedp.WaitReady("html[data-ready]"))
	b.do(chromedp.Navigate(at+"/runs/desk"), chromedp.WaitReady("html[data-ready]"))
	for _, page := range []*browser{b, rollout, list} {
		page.until(`document.querySelector('#live').textContent.includes('live')`)
	}
	w.evalrun(0, "rm", "--force", "desk")
	for _, page := range []*browser{b, rollout} { // it is cancelled before it is removed, which they may be told alone
		page.until(`document.querySelector('#live').textContent.includes('final') || document.querySelector('#newer').textContent.includes('removed from the store')`)
	}
	list.until(`document.querySelector('#newer').checkVisibility()`)
	b.do(chromedp.Click("#rollouts tbody tr a"), chromedp.WaitReady("html[data-ready]"))
	b.until(`document.querySelector('main [role=alert]')?.textContent.includes('desk')`)
	list.do(chromedp.Click("#newer a"))
	list.until(`document.readyState === 'complete' && !document.querySelector('main a[href="/runs/desk"]') && !!document.querySelector('main a[href="/runs/other"]')`)
	for _, page := range []*browser{b, rollout, list} {
		page.forget("status of 404")
	}
}

// A run whose plan cannot be read is a row among the others. Its own page says what is wrong, and so do
// the pages of all runs, which have everything of the others.
func TestADamagedRunAmongGoodOnes(t *testing.T) {
	w := tickets(t)
	w.evalrun(75, "run", "-q", "--run-id", "good", "set.json")
	w.spoil(`UPDATE plans SET data = '{' WHERE run_id = 'desk'`)
	b, at := open(t, w)
	b.says(at+"/", "good")
	b.says(at+"/runs/desk", "the run desk cannot be read")
	b.says(at+"/runs/good", "gates")
	for _, path := range []string{"/inbox", "/triggers"} {
		b.says(at+path, "the run desk cannot be read")
		if ask[int](b, `document.querySelectorAll('main a[href^="/runs/good"]').length`) == 0 {
			t.Errorf("%s has nothing of the good run", path)
		}
	}
	b.forget("status of 5")
	b.forget("status of 4")
}

// What a newer evalrun has written is named as that: a run on its page, a store before a page is opened.
func TestAStoreOfANewerVersion(t *testing.T) {
	w := tickets(t)
	w.evalrun(75, "run", "-q", "--run-id", "good", "set.json")
	w.spoil(`UPDATE plans SET data = json_set(data, '$.planVersion', 99) WHERE run_id = 'desk'`)
	b, at := open(t, w)
	b.says(at+"/runs/desk", "a later version of evalrun has planned it")
	b.says(at+"/runs/good", "gates")
	b.forget("status of 5")
	b.forget("status of 4")
	newer := newWorld(t, map[string]string{"set.json": scored})
	newer.evalrun(0, "run", "-q", "set.json")
	newer.spoil(`PRAGMA user_version = 9999`)
	if said := newer.refused("view", "--no-browser", "--port", "0"); !strings.Contains(said, "was written by a newer evalrun") || !strings.Contains(said, "update evalrun") {
		t.Errorf("view says %q", said)
	}
}

// An answer that is sent while the server is away is not lost: its card says so, has what was entered,
// and sends it once the server is there again. The page is the same all the time.
func TestAnAnswerWhileTheServerIsAway(t *testing.T) {
	w, port := tickets(t), freePort(t)
	link, kill := w.view(port)
	b := newBrowser(t)
	b.open(link, "/inbox")
	b.until(`document.documentElement.dataset.inbox === 'ready'`)
	b.do(chromedp.Evaluate(`window.here = true`, nil), chromedp.Click("article.ask summary"), chromedp.SendKeys("article.ask input[name=reason]", "I have looked"))
	kill()
	b.do(chromedp.Click("article.ask button.primary"))
	b.until(`document.querySelector('article.ask .said').checkVisibility() && document.querySelector('article.ask .said').textContent.includes('Not sent')`)
	if reason := ask[string](b, `document.querySelector('article.ask input[name=reason]').value`); reason != "I have looked" {
		t.Errorf("the reason is %q", reason)
	}
	w.view(port)
	b.do(chromedp.Click("article.ask button.primary"))
	b.until(`document.querySelector('article.ask .outcome')?.innerText.includes('Approved.') && window.here`)
	for _, failure := range []string{"net::ERR_CONNECTION_REFUSED", "net::ERR_INCOMPLETE_CHUNKED_ENCODING", "net::ERR_CONNECTION_RESET", "net::ERR_EMPTY_RESPONSE", "status of 422"} { // the last is of the form of a server that is no more
		b.forget(failure)
	}
}

// W2: a tab that nobody looks at is told nothing any more, at once. When somebody looks again it has missed
// nothing.
func TestABrowserThatSlept(t *testing.T) {
	w := tickets(t)
	link, _ := w.view("0")
	b := newBrowser(t)
	b.open(link, "/")
	b.do(chromedp.ActionFunc(onEveryPage(`let hidden = false; Object.defineProperty(document, 'hidden', {get: () => hidden}); window.sleep = yes => { hidden = yes; document.dispatchEvent(new Event('visibilitychange')); };
 const Real = EventSource; window.streams = []; window.EventSource = class extends Real { constructor(...all) { super(...all); streams.push(this); } };`)),
		chromedp.Navigate(base(t, link)+"/runs/desk"), chromedp.WaitReady("html[data-ready]"))
	b.until(`document.querySelector('#live').textContent.includes('live')`)
	b.do(chromedp.Evaluate(`sleep(true)`, nil))
	b.until(`streams.length === 1 && streams[0].readyState === 2`)
	for _, id := range w.waiting("desk") {
		w.evalrun(0, "approve", "-q", id)
	}
	w.evalrun(3, "resume", "-q", "desk")
	if n := b.text("#n-suspended"); n != "4" {
		t.Errorf("while it sleeps it is told of %s rollouts: this test proves nothing", n)
	}
	b.do(chromedp.Evaluate(`sleep(false)`, nil))
	b.until(`document.querySelector('#n-suspended').textContent === '0' && document.querySelector('#live').textContent.includes('final') && document.querySelectorAll('#rollouts a.suspended').length === 0`)
}

// What is not there is said, and so is a part of a file beyond its end.
func TestIDsThatAreNotThereAndOffsetsBeyondAFile(t *testing.T) {
	w := sharedTickets(t)
	b, at := open(t, w)
	fault := w.rollout("fault")
	for path, text := range map[string]string{
		"/runs/nobody": "nobody", "/runs/desk/rollouts/nobody": "nothing with this id", "/runs/desk/e/nobody/small/0": "no rollout of this evaluation", "/triggers/nobody/answer": "nothing with this id", fault + "/files/segments/1.1/nothing.log": "nothing.log",
		"/compare?a=desk&b=nobody": "nobody", fault + "/files/segments/1.1/stderr.log?offset=99999999": "RuntimeError", "/runs/desk?page=99&q=nothing-has-this": "Nothing matches", "/triggers?page=99": "question Refund",
	} {
		b.says(at+path, text)
	}
	b.forget("status of 4")
}

// onEveryPage runs a script before those of each page that is opened from now on.
func onEveryPage(script string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := page.AddScriptToEvaluateOnNewDocument(script).Do(ctx)
		return err
	}
}

// refused runs the program, which is to end with a message.
func (w *world) refused(args ...string) string {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, evalrun, args...)
	cmd.Dir = w.dir
	out, err := cmd.CombinedOutput()
	if err == nil || ctx.Err() != nil {
		w.Fatalf("evalrun %s was not refused: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// waiting are the triggers that a run waits for.
func (w *world) waiting(run string) (ids []string) {
	w.Helper()
	var all []struct{ TriggerID string }
	if err := json.Unmarshal([]byte(w.evalrun(0, "triggers", "--json", run)), &all); err != nil {
		w.Fatal(err)
	}
	for _, one := range all {
		ids = append(ids, one.TriggerID)
	}
	return ids
}
