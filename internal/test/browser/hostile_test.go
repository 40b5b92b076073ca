package browser

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// hostileAgent writes what acts on terminals and browsers wherever an agent can write: names of files,
// logs, outputs of five million bytes, questions and faults.
const hostileAgent = `read -r line
text=$(cat text)
printf '%s\n' "$text" >&2
case $line in
*large*) { printf '{"say":"'; cat json; head -c 5000000 /dev/zero | tr '\0' 'x'; cat json; printf '"}'; }; head -c 5000000 /dev/zero | tr '\0' 'y' >&2; printf '%s\n' "$text" >&2 ;;
*fault*) exit 3 ;;
*) printf '{"__interrupt__":[{"id":"q","value":{"type":"CreateTask","title":"'; cat json; printf '","app_name":"'; cat json; printf '","data":{"'; cat json; printf '":"'; cat json; printf '"}}}]}' ;;
esac
`

// hostileWorld is a run in which everything is hostile that others write.
func hostileWorld(t *testing.T) *world {
	t.Helper()
	text := strings.NewReplacer(`\u202e`, "\u202e", `\u001b`, "\x1b").Replace(hostile) + "\x1b]8;;javascript:window.pwned=1\x07link\x1b]8;;\x07<!--</script><svg onload=window.pwned=1>\u200b\u2066\a"
	quoted, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	bare := strings.Trim(string(quoted), `"`)
	var evaluations []string
	for _, kind := range []string{"large", "fault", "ask"} {
		evaluations = append(evaluations, fmt.Sprintf(`{"id": "%s", "name": "%s %s", "tags": ["%[3]s"], "inputs": {"%[1]s": "%[3]s"}, "expectedOutput": {"say": "%[3]s"}, "evaluationCriterias": {"c": {"expectedOutput": {"say": "%[3]s"}}}}`, kind, kind, bare))
	}
	w := newWorld(t, map[string]string{"agent.sh": hostileAgent, "text": text, "json": bare,
		"set.json": `{"version": "1.0", "id": "s", "name": "` + bare + `", "agent": {"type": "function", "name": "agent", "command": ["sh", "agent.sh"]},
 "evaluators": [{"version": "1.0", "id": "c", "evaluatorTypeId": "uipath-exact-match", "evaluatorConfig": {"name": "` + bare + `", "targetOutputKey": "say"}}], "evaluations": [` + strings.Join(evaluations, ",") + `]}`})
	for _, run := range []string{"before", "desk"} {
		w.evalrun(75, "run", "-q", "--run-id", run, "set.json")
	}
	return w
}

// Nothing of what others wrote acts on any page, and five million bytes of it neither stop a page nor
// make it large.
func TestHostileTextActsOnNoPage(t *testing.T) {
	w := hostileWorld(t)
	b, at := open(t, w)
	w.evalrun(0, "report", "desk", "--format", "html", "-o", "report.html")
	large, fault := w.rollout("large"), w.rollout("fault")
	pages := map[string]string{"report": "file://" + filepath.Join(w.dir, "report.html")}
	for name, path := range map[string]string{"runs": "/", "run": "/runs/desk", "rollouts": "/runs/desk?view=rollouts&q=%3Cscript%3E", "large": large, "faulted": fault, "waiting": w.rollout("ask"),
		"log": fault + "/files/segments/1.1/stderr.log", "large log": large + "/files/segments/1.1/stderr.log?offset=4900000", "large output": large + "/files/segments/1.1/output.json",
		"triggers": "/triggers", "inbox": "/inbox", "compare": "/compare?a=before&b=desk&by=%3Cscript%3Ewindow.pwned=1%3C/script%3E", "compared": "/compare?a=before&b=desk", "unknown": "/runs/%3Cscript%3Ewindow.pwned=1%3C%2Fscript%3E"} {
		pages[name] = at + path
	}
	for name, url := range pages {
		began := time.Now()
		b.do(chromedp.Navigate(url), chromedp.WaitReady("html[data-ready]"), chromedp.Evaluate(`for (const d of document.querySelectorAll('details')) d.open = true`, nil))
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("%s was there after %v", name, took)
		}
		b.isUnharmed()
		for _, text := range ask[[]string](b, audit) {
			t.Errorf("%s: %s", name, text)
		}
		if size := ask[int](b, `document.documentElement.outerHTML.length`); size > 1<<20 {
			t.Errorf("%s has %d bytes", name, size)
		}
		if title := ask[string](b, `document.title`); strings.ContainsAny(title, "\x1b\u202e\u200b") {
			t.Errorf("%s has the title %q", name, title)
		}
		b.screenshot("hostile-" + name)
	}
	b.forget("status of 4")
}

// The files of agents are never documents: they come as text or as attachments, in a sandbox.
func TestFilesOfAgentsAreNoDocuments(t *testing.T) {
	w := sharedTickets(t)
	files := filepath.Join(w.dir, ".evalrun", "runs", "desk", "rollouts", strings.TrimPrefix(w.rollout("fault"), "/runs/desk/rollouts/"), "segments", "1.1", "stderr.log")
	if _, err := os.Stat(files); err != nil {
		t.Fatal(err)
	}
	link, _ := w.view("0")
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Jar: jar, Timeout: time.Minute}
	get := func(url string) *http.Response {
		r, err := client.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Body.Close() // nothing of it is read
		return r
	}
	get(link)
	r := get(base(t, link) + w.rollout("fault") + "/files/segments/1.1/stderr.log?raw=1")
	kind, sandbox := r.Header.Get("Content-Type"), r.Header.Get("Content-Security-Policy")
	if r.StatusCode != http.StatusOK || r.Header.Get("X-Content-Type-Options") != "nosniff" || !strings.Contains(sandbox, "sandbox") || (kind != "text/plain; charset=utf-8" && kind != "application/octet-stream") {
		t.Errorf("%d %v", r.StatusCode, r.Header)
	}
}
