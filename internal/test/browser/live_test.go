package browser

import (
	"net"
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
