package browser

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// listedAgent passes for alpha and fails for beta, passes in one of the epochs, faults in one of them by
// itself or by its environment, or passes.
const listedAgent = `read -r line
good='{"answer":"yes","likely":"yes"}' bad='{"answer":"no","likely":"yes"}'
case $line in
*'"resume":{'*) echo "$good" ;;
*split*) if [ "$1" = alpha ]; then echo "$good"; else echo "$bad"; fi ;;
*flaky*) if mkdir "DIR/flaky-$1" 2>/dev/null; then echo "$good"; else echo "$bad"; fi ;;
*fault*) if mkdir "DIR/fault-$1" 2>/dev/null; then exit 3; fi; echo "$good" ;;
*env*) if mkdir "DIR/env-$1" 2>/dev/null; then echo '{"__interrupt__":[{"id":"q","value":{"type":"InvokeProcess","name":"Bad"}}]}'; else echo "$good"; fi ;;
*) echo "$good" ;;
esac
`

// listed is a run of two agents with evaluations of all kinds that a list tells apart.
func listed(t *testing.T) *world {
	t.Helper()
	var evaluations []string
	for _, id := range []string{"good", "split", "flaky", "fault", "env", "error"} {
		criteria := `"answer": {"expectedOutput": {"answer": "yes"}}, "likely": {"expectedOutput": {"likely": "yes"}}`
		if id == "error" {
			criteria += `, "cmd": {}`
		}
		evaluations = append(evaluations, fmt.Sprintf(`{"id": "%s", "name": "The %[1]s", "tags": ["%.1[1]s"], "inputs": {"do": "%[1]s"}, "evaluationCriterias": {%s}}`, id, criteria))
	}
	w := newWorld(t, map[string]string{"set.json": `{"version": "1.0", "id": "s", "name": "Listed", "epochs": 3, "jobs": {"Bad": {"source": "exec", "command": ["false"]}},
 "agents": [{"type": "function", "name": "alpha", "command": ["sh", "agent.sh", "alpha"]}, {"type": "function", "name": "beta", "command": ["sh", "agent.sh", "beta"]}],
 "evaluators": [{"id": "answer", "evaluatorTypeId": "uipath-exact-match", "evaluatorConfig": {"targetOutputKey": "answer"}}, {"id": "likely", "evaluatorTypeId": "uipath-exact-match", "evaluatorConfig": {"targetOutputKey": "likely"}},
  {"id": "cmd", "type": "command", "command": ["sh", "-c", "echo boom >&2; exit 1"]}],
 "evaluations": [` + strings.Join(evaluations, ",") + `]}`})
	if err := os.WriteFile(filepath.Join(w.dir, "agent.sh"), []byte(strings.ReplaceAll(listedAgent, "DIR", w.dir)), 0o600); err != nil {
		t.Fatal(err)
	}
	w.evalrun(3, "run", "-q", "--wait=jobs", "--run-id", "r", "set.json")
	return w
}

// listedQueries are states of the list of a run of two agents.
var listedQueries = []string{"", "view=rollouts", "view=rollouts&hide=epoch,e0,reason", "evaluator=answer", "evaluator=cmd", "evaluator=cmd&view=rollouts", "agent=alpha", "agent=beta&status=failed", "status=faulted&view=rollouts", "q=boom", "tag=e", "q=nothing"}

func init() {
	for _, sort := range []string{"score", "flaky"} { // the clocks of a real run are any
		for _, more := range []string{"", "&view=rollouts", "&agent=alpha", "&agent=beta&view=rollouts"} {
			listedQueries = append(listedQueries, "sort="+sort+more)
		}
	}
}

// shownList is what the list says: each row by its cells and marks, and how many are found.
const shownList = `JSON.stringify([document.querySelector('#found').textContent, [...document.querySelectorAll('#rollouts tr')].map(r => [...r.children].map(c => [c.dataset.l, c.textContent, [...c.querySelectorAll('.cells a')].map(a => [a.id, a.className.trim(), a.getAttribute('aria-label')])])), !!document.querySelector('#good')])`

// The script shows the list as the server does, filtered and sorted in every way, and so does the file of
// a report.
func TestTheScriptShowsTheListOfTheServer(t *testing.T) {
	w := listed(t)
	w.evalrun(0, "report", "r", "--format", "html", "-o", "report.html")
	b, at := open(t, w)
	served := map[string]string{}
	for _, query := range listedQueries {
		b.do(chromedp.Navigate(at+"/runs/r?"+query), chromedp.WaitReady("html[data-ready]"))
		served[query] = ask[string](b, shownList)
	}
	if served["sort=score"] == served[""] || served["evaluator=cmd"] == served[""] || served["agent=alpha"] == served[""] {
		t.Error("the states of the list are not told apart")
	}
	check := func(url, state string) {
		t.Helper()
		b.do(chromedp.Navigate("about:blank"), chromedp.Navigate(url), chromedp.WaitReady("html[data-ready]"))
		for _, query := range listedQueries {
			b.do(chromedp.Evaluate(fmt.Sprintf(`document.querySelector('#rollouts tbody').dataset.old = 'yes'; history.pushState(null, '', location.pathname + %q); dispatchEvent(new PopStateEvent('popstate'))`, state+query), nil))
			b.until(`!document.querySelector('#rollouts tbody[data-old]')`)
			if got := ask[string](b, shownList); got != served[query] {
				t.Errorf("%s%s:\nthe script shows %s\nthe server       %s", state, query, got, served[query])
			}
		}
	}
	check(at+"/runs/r", "?")
	check((&url.URL{Scheme: "file", Path: filepath.Join(w.dir, "report.html")}).String(), "#?")
}

// A row at the lower edge of the window that is opened by key is seen.
func TestAnOpenedRowIsSeen(t *testing.T) {
	b, at := open(t, listed(t))
	b.do(chromedp.EmulateViewport(1400, 500), chromedp.Navigate(at+"/runs/r?view=rollouts&status=failed"), chromedp.WaitReady("html[data-ready]"))
	b.do(chromedp.KeyEvent("j"), chromedp.KeyEvent("j"), chromedp.KeyEvent("j"))
	b.do(chromedp.Evaluate(`document.querySelector('tr.cur').scrollIntoView({ block: 'end' })`, nil), chromedp.KeyEvent("x"))
	b.until(`document.querySelector('tr.opened b')`)
	b.until(`(r => r.top >= 0 && r.bottom <= innerHeight + 1)(document.querySelector('tr.opened').getBoundingClientRect())`)
}
