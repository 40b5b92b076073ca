package browser

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"
)

// W2: twelve tabs of a browser, which has six connections to a server of HTTP/1.1, all load and all are
// told of a change: one of them has the stream for all. When that one is closed, or is hidden, another has
// it.
func TestAnyNumberOfTabs(t *testing.T) {
	w := tickets(t)
	links, _ := w.serve("serve", "--listen", "127.0.0.1:0")
	at, first := base(t, links[0]), newBrowser(t)
	first.open(links[0], "/compare")
	first.do(chromedp.Evaluate(`window.lives = 0; window.ears = new BroadcastChannel('evalrun'); ears.onmessage = e => { if (e.data.state === 'live') lives++; }; true`, nil))
	const count = `const Real = EventSource; window.streams = []; window.EventSource = class extends Real { constructor(...all) { super(...all); streams.push(this); } };
 let hidden = false; Object.defineProperty(document, 'hidden', {get: () => hidden}); window.sleep = yes => { hidden = yes; document.dispatchEvent(new Event('visibilitychange')); };`
	const open = `streams.filter(s => s.readyState < 2).length`
	paths := []string{"/runs/desk", w.rollout("ask"), "/inbox", "/", "/triggers", "/runs/desk?view=rollouts"}
	var tabs []*browser
	for i := range 12 {
		tab := first.another()
		tab.do(chromedp.ActionFunc(onEveryPage(count)), chromedp.Navigate(at+paths[i%len(paths)]), chromedp.WaitReady("html[data-ready]"), chromedp.Evaluate(`window.here = true`, nil))
		tabs = append(tabs, tab)
	}
	streams := func() (n, last int) {
		for i, tab := range tabs {
			if has := ask[int](tab, open); has > 0 {
				n, last = n+has, i
			}
		}
		return n, last
	}
	runs := []*browser{tabs[0], tabs[5], tabs[6], tabs[11]}
	live := func() {
		t.Helper()
		for _, tab := range runs {
			tab.until(`document.hidden || document.querySelector('#live').textContent.includes('live')`)
		}
		if n, _ := streams(); n != 1 {
			t.Errorf("%d streams are open", n)
		}
	}
	live()
	waiting := w.waiting("desk")
	for left, id := range waiting {
		w.evalrun(0, "approve", "-q", id)
		for _, tab := range runs {
			tab.until(fmt.Sprintf(`document.hidden || document.querySelector('#n-suspended').textContent === '%d' && window.here`, len(waiting)-left-1))
		}
		if left == 0 { // the tab that has the stream is hidden
			_, holder := streams()
			for _, hidden := range []bool{true, false} {
				before := ask[int](first, `lives`)
				tabs[holder].do(chromedp.Evaluate(fmt.Sprintf(`sleep(%t)`, hidden), nil))
				first.until(fmt.Sprintf(`lives > %d`, before))
				live()
			}
		}
	}
	runs[0].until(`document.querySelector('#live').textContent.includes('final')`)
}
