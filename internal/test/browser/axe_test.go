package browser

import (
	"os"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// axe is the source of axe-core, which package-lock.json pins.
func axe(t *testing.T) string {
	t.Helper()
	source, err := os.ReadFile("node_modules/axe-core/axe.min.js")
	if err != nil {
		if os.Getenv("EVALRUN_AXE") == "required" {
			t.Fatal("there is no axe-core (EVALRUN_AXE=required): npm ci")
		}
		t.Skip("there is no axe-core: npm ci (EVALRUN_AXE=required makes this a failure)")
	}
	return string(source)
}

const violations = `axe.run(document, {runOnly: {type: 'tag', values: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']}, resultTypes: ['violations']}).then(r =>
 r.violations.flatMap(v => v.nodes.map(n => v.id + ': ' + n.html.slice(0, 200) + '\n' + n.failureSummary)))`

func awaited(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }

// No page violates what axe-core knows of WCAG 2.2 AA, light and dark, wide and narrow, and with every
// fold open.
func TestAccessibility(t *testing.T) {
	source := axe(t)
	w := sharedTickets(t)
	b, at := open(t, w)
	w.evalrun(0, "report", "before", "--format", "html", "-o", "report.html")
	pages := map[string]string{"report": "file://" + w.dir + "/report.html"}
	for name, path := range w.pages() {
		pages[name] = at + path
	}
	b.do(page.SetBypassCSP(true)) // axe measures with styles of its own
	for name, url := range pages {
		b.do(chromedp.Navigate(url), chromedp.WaitReady("html[data-ready]"), chromedp.Evaluate(source+`; for (const d of document.querySelectorAll('details')) d.open = true`, nil))
		for _, theme := range []string{"light", "dark"} {
			for _, width := range []int64{1400, 400} {
				b.do(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}}), chromedp.EmulateViewport(width, 1000))
				var found []string
				b.do(chromedp.Evaluate(violations, &found, awaited))
				for _, text := range found {
					t.Errorf("%s, %s, %d wide: %s", name, theme, width, text)
				}
			}
		}
		b.forget("status of 4")
	}
	var found []string
	b.do(chromedp.Navigate(at+"/"), chromedp.WaitReady("html[data-ready]"), chromedp.Evaluate(source+`; document.querySelector('main').append(document.createElement('button'))`, nil), chromedp.Evaluate(violations, &found, awaited))
	if len(found) == 0 {
		t.Error("axe-core does not see a button without a name: this test proves nothing")
	}
}

// On every page: in forced colours, what has a meaning differs from the background; with reduced motion nothing moves.
func TestForcedColoursAndReducedMotion(t *testing.T) {
	w := sharedTickets(t)
	b, at := open(t, w)
	media := func(name, value string) {
		b.do(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: name, Value: value}}))
	}
	b.do(chromedp.Navigate(at+"/runs/desk"), chromedp.WaitReady("html[data-ready]"))
	b.until(`document.querySelector('#live').textContent.includes('live')`)
	moving := `document.getAnimations().length`
	if ask[int](b, moving) == 0 {
		t.Error("nothing moves on a live page: this test proves nothing")
	}
	media("prefers-reduced-motion", "reduce")
	if n := ask[int](b, moving); n != 0 {
		t.Errorf("%d things move although the reader wants less of it", n)
	}
	for name, path := range w.pages() {
		media("prefers-reduced-motion", "reduce")
		b.do(chromedp.Navigate(at+path), chromedp.WaitReady("html[data-ready]"), chromedp.Evaluate(`for (const d of document.querySelectorAll('details')) d.open = true`, nil))
		if n := ask[int](b, moving); n != 0 {
			t.Errorf("%s: %d things move although the reader wants less of it", name, n)
		}
		media("forced-colors", "active")
		for _, text := range ask[[]string](b, `(() => {
 const out = [], ground = getComputedStyle(document.body).backgroundColor;
 if (!matchMedia('(forced-colors: active)').matches) out.push('the colours are not forced');
 const check = (selector, property) => { for (const n of document.querySelectorAll(selector)) if (getComputedStyle(n)[property] === ground) out.push(n.outerHTML.slice(0, 120) + ' has the ' + property + ' of the background'); };
 check('symbol .f', 'fill'); check('symbol .s', 'stroke'); check('svg.bar rect:not(.gap), svg.tl rect:not(.brk)', 'stroke'); check('svg .dot', 'fill'); check('svg :is(.rg,.mn,.z)', 'stroke'); check('svg.tl text', 'fill');
 return out; })()`) {
			t.Errorf("%s: %s", name, text)
		}
		b.screenshot("forced-" + name)
	}
	b.forget("status of 4") // of the pages that say what is not there
}
