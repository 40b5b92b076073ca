package browser

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

const ticketAgent = `read -r line
case $line in
*'"resume":{'*) echo '{"category":"account"}' ;;
*fault*) printf '\033[31mRuntimeError\033[0m: KB not reachable \342\200\256\n' >&2; exit 3 ;;
*ask*) echo '{"__interrupt__":[{"id":"q","value":{"type":"CreateTask","title":"Refund?","app_name":"Refunds","data":{"amount":1250}}}]}' ;;
*wrong*) echo '{"category":"billing"}' ;;
*) echo '{"category":"account"}' ;;
esac
`

// tickets is a run of evaluations of every kind, with rollouts that wait.
func tickets(t *testing.T) *world {
	t.Helper()
	var evaluations []string
	for i, kind := range []string{"account", "wrong", "fault", "ask", "wrong", "account"} {
		name, err := json.Marshal(kind + " \x1b[31m</title></script><script>alert(1)</script><img src=x onerror=alert(1)>\u202egnp")
		if err != nil {
			t.Fatal(err)
		}
		evaluations = append(evaluations, fmt.Sprintf(`{"id": "%s-%d", "name": %s, "tags": ["%s"], "inputs": {"kind": "%s"}, "evaluationCriterias": {"c": {"expectedOutput": {"category": "account"}}}}`, kind, i, name, kind, kind))
	}
	set := `{"version": "1.0", "id": "s", "name": "Support desk", "epochs": 2, "thresholds": {"score": {"min": 0.6, "by": "interval"}, "passRate": 0.9},
 "agents": [{"type": "function", "name": "small", "command": ["sh", "agent.sh"]}, {"type": "function", "name": "large", "command": ["sh", "agent.sh"]}],
 "evaluators": [{"version": "1.0", "id": "c", "evaluatorTypeId": "uipath-exact-match", "evaluatorConfig": {"name": "Category", "targetOutputKey": "category"}}],
 "evaluations": [` + strings.Join(evaluations, ",") + `]}`
	w := newWorld(t, map[string]string{"set.json": set, "agent.sh": ticketAgent})
	w.evalrun(75, "run", "-q", "--run-id", "desk", "set.json")
	return w
}

// ticketsOnce is the folder of the tickets for the tests that only look at them, with an earlier run.
var ticketsOnce struct {
	sync.Once
	dir string
}

func sharedTickets(t *testing.T) *world {
	t.Helper()
	ticketsOnce.Do(func() {
		w := tickets(t)
		w.evalrun(75, "run", "-q", "--run-id", "before", "set.json")
		ticketsOnce.dir = filepath.Join(filepath.Dir(evalrun), "tickets")
		if err := os.Rename(w.dir, ticketsOnce.dir); err != nil {
			t.Fatal(err)
		}
	})
	if ticketsOnce.dir == "" {
		t.Fatal("there are no tickets")
	}
	return &world{t, ticketsOnce.dir}
}

// rollout is the page of the first rollout of a kind.
func (w *world) rollout(kind string) string {
	w.Helper()
	var results struct {
		All []struct{ EvaluationID, RolloutID string } `json:"evaluationSetResults"`
	}
	if err := json.Unmarshal([]byte(w.evalrun(0, "show", "--json", "desk")), &results); err != nil {
		w.Fatal(err)
	}
	for _, r := range results.All {
		if strings.HasPrefix(r.EvaluationID, kind) {
			return "/runs/desk/rollouts/" + r.RolloutID
		}
	}
	w.Fatal("there is no rollout of the kind ", kind)
	return ""
}

// view starts evalrun view on a port, and returns its link, and what kills it.
func (w *world) view(port string) (link string, kill func()) {
	w.Helper()
	links, kill := w.serve("view", "--no-browser", "--port", port)
	return links[0], kill
}

// base is where the server of a link is.
func base(t *testing.T, link string) string {
	t.Helper()
	u, err := url.Parse(link)
	if err != nil {
		t.Fatal(err)
	}
	return "http://" + u.Host
}

func ask[T any](b *browser, expression string) (out T) {
	b.Helper()
	b.do(chromedp.Evaluate(expression, &out))
	return out
}

// audit finds what a page must not have, and returns it in words.
const audit = `(() => {
 const out = [], all = s => [...document.querySelectorAll(s)];
 if (document.documentElement.scrollWidth > innerWidth) out.push('scrolls sideways: ' + document.documentElement.scrollWidth);
 if (all('h1').length !== 1) out.push(all('h1').length + ' h1');
 let level = 1;
 for (const h of all('h1,h2,h3,h4,h5')) { const n = +h.tagName[1]; if (n > level + 1) out.push('heading ' + h.textContent + ' jumps to ' + n); level = n; }
 const ids = new Set(); for (const n of all('[id]')) { if (ids.has(n.id)) out.push('two of the id ' + n.id); ids.add(n.id); }
 for (const n of all('th')) if (!n.scope) out.push('th without scope: ' + n.textContent);
 for (const n of all('input:not([type=hidden]),select,textarea')) if (!n.labels?.length && !n.getAttribute('aria-label')) out.push('no label: ' + n.outerHTML.slice(0, 80));
 for (const n of all('a,button')) if (!(n.textContent.trim() || n.getAttribute('aria-label'))) out.push('no name: ' + n.outerHTML.slice(0, 80));
 for (const n of all('svg[role=img]')) if (!n.getAttribute('aria-label')) out.push('a drawing without a name');
 for (const n of all('main *')) { if (/^(script|img|iframe|object|embed|style|link|base|meta)$/i.test(n.tagName)) out.push('foreign: ' + n.tagName); for (const a of n.attributes) if (a.name === 'style' || a.name.startsWith('on')) out.push('inline: ' + a.name); }
 if (all('*').length > 5000) out.push(all('*').length + ' elements');
 return out;
})()`

// Every page, light and dark, wide and narrow, and enlarged to 200 and 400 percent: nothing in the
// console, no report of the policy, no sideways scroll, and what the audit looks at.
func TestPagesLightAndDarkWideAndNarrow(t *testing.T) {
	w := sharedTickets(t)
	b, at := open(t, w)
	for name, path := range w.pages() {
		b.do(chromedp.Navigate(at+path), chromedp.WaitReady("html[data-ready]"))
		for _, theme := range []string{"light", "dark"} {
			for _, width := range []int64{1400, 700, 400, 320} {
				where := fmt.Sprintf("%s-%s-%d", name, theme, width)
				b.do(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}}), chromedp.EmulateViewport(width, 1000))
				for _, text := range ask[[]string](b, audit) {
					t.Errorf("%s: %s", where, text)
				}
				if width != 700 && width != 320 {
					b.screenshot("page-" + where)
				}
			}
		}
		b.forget("status of 4") // of the pages that say what is not there
	}
}

// pages are all pages of the tickets, by what they show.
func (w *world) pages() map[string]string {
	w.Helper()
	return map[string]string{"runs": "/", "run": "/runs/desk", "rollouts": "/runs/desk?view=rollouts&sort=score", "none": "/runs/desk?q=nothing-has-this",
		"failed": w.rollout("wrong"), "faulted": w.rollout("fault"), "waiting": w.rollout("ask"), "file": w.rollout("fault") + "/files/segments/1.1/stderr.log",
		"triggers": "/triggers", "inbox": "/inbox", "compare": "/compare?a=before&b=desk", "compared with nothing": "/compare?a=desk&b=nobody", "choose": "/compare", "unknown": "/runs/nobody"}
}

const facts = `JSON.stringify([document.querySelector('#t-why').textContent, [...document.querySelectorAll('.counts .num')].map(n => n.textContent), document.querySelector('#rollouts tbody tr').textContent, document.querySelectorAll('#rollouts tbody tr').length])`

// The page says the same without its script, and filters are links and forms.
func TestWithoutScriptTheSameFacts(t *testing.T) {
	w := sharedTickets(t)
	b, at := open(t, w)
	for _, query := range []string{"", "?status=failed", "?sort=score&view=rollouts", "?q=fault"} {
		b.do(chromedp.Navigate(at+"/runs/desk"), chromedp.WaitReady("html[data-ready]"))
		if query != "" { // the script makes the list, as somebody would by a link
			b.do(chromedp.Evaluate(`{ const a = document.querySelector('a[data-view=matrix]'); a.setAttribute('href', '`+query+`'); a.click(); }`, nil))
			b.until(`location.search === '` + query + `'`)
		}
		with := ask[string](b, facts)
		b.do(emulation.SetScriptExecutionDisabled(true), chromedp.Navigate(at+"/runs/desk"+query), chromedp.WaitReady("#rollouts"), emulation.SetScriptExecutionDisabled(false))
		if ask[bool](b, `'ready' in document.documentElement.dataset`) {
			t.Fatal("the script has run")
		}
		if without := ask[string](b, facts); without != with {
			t.Errorf("%s\nwith the script %s\nwithout         %s", query, with, without)
		}
	}
}

// From the run to a rollout, to the next failure, and back, with keys alone.
func TestKeysAlone(t *testing.T) {
	w := sharedTickets(t)
	b, at := open(t, w)
	b.do(chromedp.Navigate(at+"/runs/desk?status=failed"), chromedp.WaitReady("html[data-ready]"), chromedp.KeyEvent("j"), chromedp.KeyEvent("j"))
	if text := ask[string](b, `document.activeElement.closest('tr').querySelector('code').textContent`); text != "wrong-4" {
		t.Errorf("the second row is %q", text)
	}
	b.do(chromedp.KeyEvent("k"), chromedp.KeyEvent("o"))
	b.until(`location.pathname.includes('/rollouts/') && document.documentElement.dataset.ready`)
	first := ask[string](b, `location.pathname`)
	b.do(chromedp.KeyEvent("n"))
	b.until(`location.pathname.includes('/rollouts/') && location.pathname !== '` + first + `' && document.documentElement.dataset.ready`)
	if query := ask[string](b, `location.search`); !strings.Contains(query, "status%3Dfailed") {
		t.Errorf("the list is forgotten: %s", query)
	}
	b.do(chromedp.KeyEvent("p"))
	b.until(`location.pathname === '` + first + `' && document.documentElement.dataset.ready`)
	b.do(chromedp.KeyEvent("?"))
	b.until(`document.querySelector('#keys').open`)
	b.do(chromedp.KeyEvent(kb.Escape))
	b.until(`!document.querySelector('#keys').open`)
}

// Tab alone reaches everything on a page that can be used, the link past the navigation first, and one
// sees where one is.
func TestTabReachesEverything(t *testing.T) {
	w := sharedTickets(t)
	b, at := open(t, w)
	for _, path := range []string{"/runs/desk", w.rollout("wrong"), w.rollout("ask"), "/inbox", "/compare?a=before&b=desk"} {
		b.do(chromedp.Navigate(at+path), chromedp.WaitReady("html[data-ready]"), chromedp.KeyEvent(kb.Tab))
		if text := ask[string](b, `document.activeElement.textContent`); text != "Skip to the content" {
			t.Errorf("%s: the first that Tab reaches is %q", path, text)
		}
		b.do(chromedp.Evaluate(`window.reached = new Set(), window.unseen = [];
 window.usable = [...document.querySelectorAll('a[href],button,input:not([type=hidden]),select,textarea,summary,[tabindex="0"]')].filter(n => n.checkVisibility() && !n.closest('dialog:not([open])'));
 addEventListener('focusin', e => { reached.add(e.target); const s = getComputedStyle(e.target); if (s.outlineStyle === 'none' || !parseFloat(s.outlineWidth)) unseen.push(e.target.outerHTML.slice(0, 120)); })`, nil))
		for range ask[int](b, `usable.length`) + 3 {
			b.do(chromedp.KeyEvent(kb.Tab))
		}
		for _, text := range ask[[]string](b, `usable.filter(n => !reached.has(n) && n.className !== 'skip').map(n => 'Tab does not reach ' + n.outerHTML.slice(0, 120)).concat(unseen.map(n => 'one does not see the focus on ' + n))`) {
			t.Errorf("%s: %s", path, text)
		}
	}
}

// A question is answered by its keys, and the answer taken back.
func TestAnAnswerByKeysIsTakenBack(t *testing.T) {
	w := sharedTickets(t)
	b, at := open(t, w)
	b.do(chromedp.Navigate(at+"/inbox"), chromedp.WaitReady("html[data-inbox=ready]"), chromedp.KeyEvent("j"), chromedp.KeyEvent("d"))
	b.until(`document.activeElement.textContent === 'Undo' && document.querySelector('.outcome').innerText.includes('Deny is sent in')`)
	b.do(chromedp.KeyEvent(kb.Enter))
	b.until(`!document.querySelector('.outcome') && document.activeElement.value === 'deny'`)
	b.do(chromedp.KeyEvent("e"))
	b.until(`document.activeElement.name === 'reason' && document.activeElement.closest('details').open`)
	b.do(chromedp.KeyEvent("yes")) // after the e, which the protocol of the browser types all the same
	b.until(`document.activeElement.value.endsWith('yes') && document.querySelector('.preview').textContent.includes('yes"')`)
}

// open opens a browser on the pages of a world.
func open(t *testing.T, w *world) (b *browser, at string) {
	t.Helper()
	link, _ := w.view("0")
	b = newBrowser(t) // it is gone before the server is, so that its pages miss nothing
	b.open(link, "/")
	return b, base(t, link)
}
