package browser

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
)

// A log is followed on the page of its rollout until the agent has ended; and on the page of the run a
// row is opened in its place, by key.
func TestALogIsFollowedAndARowIsOpened(t *testing.T) {
	w := newWorld(t, map[string]string{
		"agent.sh": "read -r line; echo begun >&2; until [ -e go ]; do sleep 0.1; done; echo '<b>on</b>' >&2; until [ -e stop ]; do sleep 0.1; done; echo last >&2; echo '{\"x\": 1}'\n",
		"set.json": `{"version": "1.0", "id": "f", "name": "Follow", "agent": {"type": "function", "command": ["sh", "agent.sh"]}, "evaluators": [{"id": "x", "evaluatorTypeId": "uipath-exact-match", "evaluatorConfig": {"targetOutputKey": "x"}}],
 "evaluations": [{"id": "one", "name": "One", "inputs": {}, "evaluationCriterias": {"x": {"expectedOutput": {"x": 2}}}}]}`})
	cmd := exec.Command(evalrun, "run", "--run-id", "f", "set.json")
	cmd.Dir = w.dir
	says, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }() // it has failed by its score
	touch := func(name string) {
		if err := os.WriteFile(filepath.Join(w.dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	defer touch("stop")
	defer touch("go")
	lines := bufio.NewReader(says)
	if _, err := lines.ReadString('\n'); err != nil { // it says the run, whose plan is stored by then
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, lines) }() // so that it never waits for us
	links, _ := w.serve("view", "--no-browser")
	link := links[0]
	b := newBrowser(t)
	b.open(link, "/")
	page := base(t, link) + "/runs/f/rollouts/" + w.rolloutsOf("f", "one")[0]
	for begun := false; !begun; begun = ask[bool](b, `document.querySelector('#log')?.textContent.includes('begun') ?? false`) {
		b.do(chromedp.Navigate(page))
	}
	b.until(`document.querySelector('#follow') && !document.querySelector('#follow').hidden && document.querySelector('#log').textContent.includes('begun')`)
	b.do(chromedp.Evaluate(`document.querySelector('#follow').click()`, nil))
	touch("go")
	b.until(`document.querySelector('#log').textContent.endsWith('<b>on</b>\n')`)
	touch("stop")
	b.until(`document.querySelector('#following').textContent.includes('has ended') && document.querySelector('#log').textContent.endsWith('last\n')`)
	_ = cmd.Wait()
	b.do(chromedp.Navigate(base(t, link)+"/runs/f"), chromedp.WaitVisible("#rollouts .open"))
	b.do(chromedp.KeyEvent("j"), chromedp.KeyEvent("x"))
	b.until(`document.querySelector('tr.opened pre')?.textContent.includes('expected')`)
	if at := ask[string](b, `location.pathname`); filepath.Base(filepath.Dir(at)) != "runs" {
		t.Errorf("the list was left for %s", at)
	}
	b.screenshot("opened")
	b.do(chromedp.KeyEvent("x"))
	b.until(`!document.querySelector('tr.opened')`)
}
