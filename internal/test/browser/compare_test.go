package browser

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// A row of a comparison is opened in its place, by key, and has what the page of the outputs has, which
// is reached by its name. What agents wrote acts there as little as elsewhere.
func TestARowOfAComparisonIsOpened(t *testing.T) {
	const said = "refund <script>window.pwned=1</script> "
	w := newWorld(t, map[string]string{"say": said + "yes",
		"agent.sh": `read -r line; printf '{"x": "%s"}' "$(cat say)"` + "\n",
		"set.json": `{"version": "1.0", "id": "c", "name": "C", "agent": {"type": "function", "name": "agent", "command": ["sh", "agent.sh"]}, "evaluators": [{"id": "x", "evaluatorTypeId": "uipath-exact-match", "evaluatorConfig": {"targetOutputKey": "x"}}],
 "evaluations": [{"id": "one", "name": "One", "inputs": {}, "evaluationCriterias": {"x": {"expectedOutput": {"x": "` + said + `yes"}}}}]}`})
	w.evalrun(0, "run", "-q", "--run-id", "before", "set.json")
	if err := os.WriteFile(filepath.Join(w.dir, "say"), []byte(said+"no"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.evalrun(0, "run", "-q", "--run-id", "after", "set.json")
	b, at := open(t, w)
	b.do(chromedp.Navigate(at+"/compare?a=before&b=after"), chromedp.WaitVisible("button.open"), chromedp.KeyEvent("j"), chromedp.KeyEvent("x"))
	b.until(`document.querySelector('tr.opened ins')`)
	const sides = `[...document.querySelectorAll('.grid2 pre')].map(n => n.innerHTML)`
	opened := ask[[]string](b, sides)
	if len(opened) != 2 || !strings.Contains(opened[0], "<del>yes</del>") || !strings.Contains(opened[1], "<ins>no</ins>") || !strings.Contains(opened[1], "&lt;script&gt;") {
		t.Errorf("the row has %q", opened)
	}
	b.isUnharmed()
	b.do(page.SetBypassCSP(true), chromedp.Reload(), chromedp.WaitVisible("button.open"), chromedp.Click("button.open"))
	b.until(`document.querySelector('tr.opened ins')`)
	b.isAccessible(axe(t), "a row of a comparison that is open")
	b.do(emulation.SetEmulatedMedia(), chromedp.EmulateViewport(1400, 1000), chromedp.KeyEvent("j"), chromedp.KeyEvent("x"))
	b.until(`!document.querySelector('tr.opened')`)
	b.do(chromedp.KeyEvent("o"), chromedp.WaitReady(`.crumbs a[href^="/compare"]`), chromedp.WaitReady("html[data-ready]"))
	if whole := ask[[]string](b, sides); strings.Join(whole, "\n") != strings.Join(opened, "\n") {
		t.Errorf("the page has %q, the row has %q", whole, opened)
	}
}
