package browser

import (
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
)

// site serves the site of the documentation, which .ci/site builds.
func site(t *testing.T) (url string) {
	t.Helper()
	const dir = "../../../site/.build/site"
	if _, err := os.Stat(dir + "/index.html"); err != nil {
		if os.Getenv("EVALRUN_SITE") == "required" {
			t.Fatal("the site of the documentation is not built (EVALRUN_SITE=required): .ci/site")
		}
		t.Skip("the site of the documentation is not built: .ci/site (EVALRUN_SITE=required makes this a failure)")
	}
	s := httptest.NewServer(http.FileServer(http.Dir(dir)))
	t.Cleanup(s.Close)
	return s.URL
}

// The site keeps to what axe-core knows of WCAG 2.2 AA, wide and narrow, in both themes. It asks nobody
// else for anything, and no page is wider than its window.
func TestSite(t *testing.T) {
	at, source := site(t), axe(t)
	wcag := strings.Replace(violations, ", 'best-practice'", "", 1) // tables have empty corners, and the theme names landmarks twice
	b := newBrowser(t)
	chromedp.ListenTarget(b.ctx, func(event any) {
		if e, ok := event.(*network.EventRequestWillBeSent); ok && !strings.HasPrefix(e.Request.URL, at) && !strings.HasPrefix(e.Request.URL, "data:") {
			b.note("a foreign request: " + e.Request.URL)
		}
	})
	b.do(network.Enable())
	for _, name := range []string{"index", "tutorial", "checks", "coming-from"} {
		for _, theme := range []string{"light", "dark"} {
			for _, width := range []int64{1400, 900, 400} {
				b.do(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}}), chromedp.EmulateViewport(width, 1000),
					chromedp.Navigate(at+"/"+name+".html"), chromedp.Evaluate(source, nil))
				var found []string
				b.do(chromedp.Evaluate(wcag, &found, awaited))
				for _, text := range found {
					t.Errorf("%s, %s, %d wide: %s", name, theme, width, text)
				}
				if over := ask[int](b, `document.documentElement.scrollWidth - innerWidth`); over > 0 {
					t.Errorf("%s, %s: %d pixels more than %d wide", name, theme, over, width)
				}
			}
		}
	}
}

// newcomers are what those who see the program for the first time type into the search, and pages that
// answer them.
var newcomers = []struct {
	words string
	pages []string
}{
	{"install", []string{"install"}},
	{"first run", []string{"tutorial"}},
	{"LangGraph", []string{"guides/langgraph", "python"}},
	{"UiPath", []string{"guides/uipath", "python", "coming-from", "compatibility"}},
	{"compare models", []string{"models", "compare"}},
	{"prompt variables", []string{"models"}},
	{"promptfoo", []string{"coming-from", "import"}},
	{"approve", []string{"guides/approvals", "inbox", "tutorial", "serve", "pages", "reference/commands"}},
	{"resume", []string{"tutorial", "ci", "reference/commands"}},
	{"GitHub action", []string{"ci"}},
	{"exit code 75", []string{"reference/exit-codes", "ci"}},
	{"threshold", []string{"guides/gates", "evalsets", "ci", "tutorial"}},
	{"judge calibration", []string{"judges"}},
	{"regex", []string{"checks"}},
	{"tool call suspended", []string{"gateway", "acp", "tutorial"}},
	{"secrets", []string{"guides/secrets", "operations", "evalsets"}},
	{"PostgreSQL", []string{"postgres"}},
	{"Docker", []string{"docker"}},
	{"Slack", []string{"notifications"}},
	{"cost of a run", []string{"usage"}},
	{"TypeScript", []string{"guides/typescript"}},
}

// What newcomers ask is answered by a page among the first eight that the site's search finds.
func TestTheSearchOfTheSite(t *testing.T) {
	at := site(t)
	b := newBrowser(t)
	const found = `(search => [...new Set([...search.querySelectorAll('a[href*=".html"]')].map(a => new URL(a.href).pathname))])(
		[...document.body.children].find(e => e.shadowRoot).shadowRoot)`
	for _, q := range newcomers {
		b.do(chromedp.Navigate(at+"/index.html"), chromedp.Click(".md-search__button"))
		b.until(`[...document.body.children].some(e => e.shadowRoot?.querySelector('input'))`)
		// What is typed before the index is there is not answered, so it is typed until it is.
		b.until(`(input => { input.focus(); input.value = ` + strconv.Quote(q.words) + `; input.dispatchEvent(new InputEvent('input', {bubbles: true, composed: true})) })(
			[...document.body.children].find(e => e.shadowRoot).shadowRoot.querySelector('input')), (window.found = ` + found + `).length > 0`)
		pages := ask[[]string](b, `window.found`)
		pages = pages[:min(len(pages), 8)]
		if !slices.ContainsFunc(q.pages, func(page string) bool { return slices.Contains(pages, "/"+page+".html") }) {
			t.Errorf("%q finds none of %v, but %v", q.words, q.pages, pages)
		}
	}
}
