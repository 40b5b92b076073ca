package web_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/evalrun/evalrun/internal/access"
	"github.com/evalrun/evalrun/internal/service"
	"github.com/evalrun/evalrun/internal/testenv"
	"github.com/evalrun/evalrun/internal/web"
	"github.com/evalrun/evalrun/runner"
	"github.com/evalrun/evalrun/schemas"
)

// evil is in every text that an agent, an evaluation or a job can write.
const evil = "\x1b[31m\x1b]8;;http://evil\x07</title></script><script>alert(1)</script><img src=x onerror=alert(1)>\u202egnp.\u200b{{.Secret}}\x9b<!--"

// ticketAgent does what the ticket says: it answers, fails, asks or waits for a job.
const ticketAgent = `read -r line
case $line in
*'"resume":{'*) echo '{"category":"refund","reply":"done"}' ;;
*fault*) printf '\033[31mRuntimeError\033[0m: \033]8;;x\007 <script>alert(2)</script> \342\200\256\n' >&2; exit 3 ;;
*ask*) echo '{"__interrupt__":[{"id":"q","value":{"type":"CreateTask","title":"Refund?","app_name":"Refunds","data":{"amount":1250}}}]}' ;;
*large*) head -c 5000000 /dev/zero | tr '\0' 'x' | sed 's/^/{"category":"/; s/$/"}/' ;;
*wrong*) echo '{"category":"billing","reply":"no"}' ;;
*) printf '%s\n' "$line" | sed 's/.*"evil":/{"category":"account","reply":/; s/"}.*/"}/' ;;
esac
`

// site is a store with a run, and its pages.
type site struct {
	testing.TB
	pages http.Handler
	store *runner.Store
	runID string
	head  schemas.Head
	all   []schemas.Rollout
}

func quoted(text string) string {
	out, _ := json.Marshal(text)
	return string(out)
}

// newSite runs a set of n evaluations of every kind, twice each, against two agents.
func newSite(t testing.TB, n int, kinds ...string) *site {
	t.Helper()
	var evaluations []string
	for i := range n {
		kind, criteria := kinds[i%len(kinds)], `{"c": {"expectedOutput": {"category": "account"}}}`
		if kind == "large" {
			criteria = `{}`
		}
		evaluations = append(evaluations, fmt.Sprintf(`{"id": "%s-%d", "name": %s, "tags": [%s], "inputs": {"kind": "%s", "evil": %s}, "evaluationCriterias": %s}`,
			kind, i, quoted(kind+" "+evil), quoted("tag "+evil), kind, quoted(evil), criteria))
	}
	epochs := 2
	if kinds[0] == "large" {
		epochs = 1
	}
	set := `{"version": "1.0", "id": "s", "name": ` + quoted("Set "+evil) + `, "epochs": ` + fmt.Sprint(epochs) + `, "thresholds": {"score": {"min": 0.6, "by": "interval"}, "passRate": 0.9},
	 "agents": [{"type": "function", "name": "one", "command": ["sh", "agent.sh"]}, {"type": "function", "name": ` + quoted("two "+evil) + `, "command": ["sh", "agent.sh"]}],
	 "evaluators": [{"version": "1.0", "id": "c", "evaluatorTypeId": "uipath-exact-match", "evaluatorConfig": {"name": ` + quoted("Category "+evil) + `, "targetOutputKey": "category"}}],
	 "evaluations": [` + strings.Join(evaluations, ",") + `]}`
	dir := t.TempDir()
	for name, text := range map[string]string{"set.json": set, "agent.sh": ticketAgent} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return newSiteOf(t, dir)
}

// newSiteOf runs the set in a folder.
func newSiteOf(t testing.TB, dir string) *site {
	t.Helper()
	return newSiteFrom(t, dir, filepath.Join(dir, "set.json"), runner.LoadOptions{})
}

// newSiteFrom runs a set, or the folder of a task, with a store in dir.
func newSiteFrom(t testing.TB, dir, set string, o runner.LoadOptions) *site {
	t.Helper()
	return newSiteMade(t, dir, set, o, runner.CreateOptions{})
}

// newSiteMade runs a set as one says.
func newSiteMade(t testing.TB, dir, set string, o runner.LoadOptions, made runner.CreateOptions) *site {
	t.Helper()
	loaded, err := runner.Load([]string{set}, o)
	if err != nil {
		t.Fatal(err)
	}
	s := &site{TB: t}
	if s.store, err = runner.Open(filepath.Join(dir, "store"), runner.OpenOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.store.Close() })
	created, err := s.store.Create(t.Context(), loaded, made)
	if err != nil {
		t.Fatal(err)
	}
	s.runID = created.RunID
	if _, err := s.store.Run(t.Context(), s.runID, runner.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	for _, e := range web.New(web.Options{Service: service.New(s.store, service.Config{}, service.Options{})}).Endpoints() {
		mux.Handle(e.Pattern, e.Handler)
	}
	s.pages = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mux.ServeHTTP(w, r.WithContext(access.With(r.Context(), access.Identity{ID: "t", Scopes: access.Scopes})))
	})
	var document bytes.Buffer
	if err := s.store.Report(t.Context(), s.runID, runner.Variables{}, func(r *runner.Report) error { return r.Write(&document, "json") }); err != nil {
		t.Fatal(err)
	}
	var results schemas.Results
	if err := json.Unmarshal(document.Bytes(), &results); err != nil {
		t.Fatal(err)
	}
	s.head, s.all = results.Head, results.EvaluationSetResults
	return s
}

// get answers with a page.
func (s *site) get(path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	s.pages.ServeHTTP(w, httptest.NewRequestWithContext(s.Context(), http.MethodGet, path, nil))
	return w
}

// page is a page that must be there.
func (s *site) page(path string) string {
	s.Helper()
	w := s.get(path)
	if w.Code != http.StatusOK {
		s.Fatalf("%s: %d %s", path, w.Code, w.Body)
	}
	return w.Body.String()
}

// rollout is the first one of a kind.
func (s *site) rollout(kind string) schemas.Rollout {
	s.Helper()
	for _, one := range s.all {
		if strings.HasPrefix(one.EvaluationID, kind) {
			return one
		}
	}
	s.Fatal("there is no rollout of the kind ", kind)
	panic("unreachable")
}

// path is the page of a rollout.
func (s *site) path(one schemas.Rollout) string {
	return "/runs/" + s.runID + "/rollouts/" + one.RolloutID
}

var tagsOf = regexp.MustCompile(`<[^>]*>`)

// texts are the texts of the cells of a table's rows.
func texts(page, row string) (out [][]string) {
	for _, m := range regexp.MustCompile(`(?s)<tr`+row+`.*?</tr>`).FindAllString(page, -1) {
		var cells []string
		for _, c := range regexp.MustCompile(`(?s)<t[dh][^>]*>(.*?)</t[dh]>`).FindAllStringSubmatch(m, -1) {
			cells = append(cells, tagsOf.ReplaceAllString(c[1], ""))
		}
		out = append(out, cells)
	}
	return out
}

func three(score *float64) string {
	if score == nil {
		return "–"
	}
	return fmt.Sprintf("%.3f", *score)
}

func TestEveryNumberOfTheRunPageIsThatOfTheResults(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	s := newSite(t, 10, "account", "wrong", "fault", "ask", "account")
	page := s.page("/runs/" + s.runID)
	want := func(text string) {
		t.Helper()
		if !strings.Contains(page, text) {
			t.Errorf("the page lacks %q", text)
		}
	}
	counts := map[string]int{}
	for _, one := range s.all {
		status := string(one.Status)
		if one.Status == schemas.StateCompleted {
			if status = "passed"; *one.Score < 1 {
				status = "failed"
			}
		}
		counts[status]++
	}
	for status, n := range counts {
		want(fmt.Sprintf(`id="n-%s">%d<`, status, n))
	}
	want(fmt.Sprintf(`<span id="t-rev">%d</span>`, s.head.Revision))
	gates := texts(page, ` data-gate=`)
	for i, g := range s.head.Statistics.Gates {
		row := gates[i]
		if row[0] != string(g.Verdict) || row[3] != three(g.Value) || row[5] != three(&g.Min) || !strings.Contains(row[4], three(&g.Low)+" – "+three(&g.High)) {
			t.Errorf("gate %d: %q, want %+v", i, row, g)
		}
	}
	evaluators := texts(page, ` data-evaluator=`)
	for i, a := range s.head.Statistics.Agents {
		e := a.Evaluators[0]
		if got := evaluators[0][1+2*i]; got != three(e.Mean) {
			t.Errorf("agent %d: the page has %s, the results %s", i, got, three(e.Mean))
		}
		want(fmt.Sprintf("%d of %d", a.EvaluationsPassed, a.Coverage.Evaluations))
		want(three(a.ScoreCompleted.Mean))
		want(three(a.PassRate.Mean))
	}
	list := s.page("/runs/" + s.runID + "?view=rollouts")
	for _, one := range s.all {
		row := texts(list, ` id="r`+one.RolloutID)
		if len(row) != 1 || row[0][4] != three(one.Score) || row[0][3] != fmt.Sprint(one.Epoch) {
			t.Errorf("rollout %s: %q, want %s", one.RolloutID, row, three(one.Score))
		}
	}
}

func TestEveryNumberOfARolloutIsThatOfTheResults(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	s := newSite(t, 4, "account", "wrong", "fault", "ask")
	for _, one := range s.all {
		page := s.page(s.path(one))
		if !strings.Contains(page, `id="score">`+three(one.Score)+`<`) {
			t.Errorf("%s: its score is %s", one.EvaluationID, three(one.Score))
		}
		table := page[strings.Index(page, "Why this score"):strings.Index(page, `id="timeline"`)]
		rows := texts(table, `><th scope="row"`)
		if len(rows) != len(one.EvaluationRunResults) {
			t.Errorf("%s: %d of %d results", one.EvaluationID, len(rows), len(one.EvaluationRunResults))
		}
		for i, e := range one.EvaluationRunResults {
			if rows[i][1] != three(e.Result.Score) {
				t.Errorf("%s: %q, want %s", one.EvaluationID, rows[i], three(e.Result.Score))
			}
		}
	}
}

// Nothing that somebody else has written is markup, or acts in another way.
func TestHostileTextIsText(t *testing.T) {
	t.Parallel()
	s := newSite(t, 4, "account", "wrong", "fault", "ask")
	paths := []string{"/", "/?q=" + url.QueryEscape(evil), "/inbox", "/runs/" + s.runID, "/runs/" + s.runID + "?view=rollouts&q=" + url.QueryEscape(evil), "/runs/" + url.PathEscape(evil)}
	for _, kind := range []string{"account", "wrong", "fault", "ask"} {
		one := s.rollout(kind)
		paths = append(paths, s.path(one)+"?from="+url.QueryEscape("q="+evil))
		for _, log := range one.Logs {
			paths = append(paths, s.path(one)+"/files/"+log[strings.Index(log, "segments/"):])
		}
	}
	for _, path := range paths {
		w := s.get(path)
		page := w.Body.String()
		if h := w.Header(); !strings.Contains(h.Get("Content-Security-Policy"), "require-trusted-types-for 'script'") || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Referrer-Policy") != "no-referrer" || h.Get("Cross-Origin-Opener-Policy") != "same-origin" || h.Get("Cache-Control") != "no-store" {
			t.Errorf("%.60s: %v", path, h)
		}
		if n := strings.Count(page, "<script"); n > 2 || strings.Contains(page, "<script>") || strings.Contains(page, "<img") {
			t.Errorf("%.60s: has foreign elements", path)
		}
		if i := strings.IndexFunc(page, func(r rune) bool {
			return r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u200b')
		}); i >= 0 {
			t.Errorf("%.60s: has %q", path, page[max(0, i-60):i+10])
		}
		if len(page) > 400_000 {
			t.Errorf("%.60s: has %d bytes", path, len(page))
		}
		if strings.Contains(page, "\x1b") || regexp.MustCompile(`\sstyle=|\son\w+="`).MatchString(page) {
			t.Errorf("%.60s: has an inline style or handler", path)
		}
	}
	log := html.UnescapeString(s.page(s.path(s.rollout("fault")) + "/files/segments/1.1/stderr.log"))
	if !strings.Contains(log, `<span class="a31">RuntimeError</span>`) || !strings.Contains(log, `<b class="ctl">U+202E</b>`) || !strings.Contains(log, `<b class="ctl">ESC</b>`) {
		t.Errorf("the log is %s", log[strings.Index(log, "<pre"):])
	}
}

func TestFilesComeInPartsAndStayInTheirFolder(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	s := newSite(t, 1, "large")
	one := s.all[0]
	if page := s.page(s.path(one)); len(page) > 100_000 {
		t.Errorf("the page of the rollout has %d bytes", len(page))
	}
	file := s.path(one) + "/files/segments/1.1/output.json"
	size := 0
	seen := 0
	for next := "?offset=0"; next != ""; seen++ {
		page := s.page(file + next)
		if len(page) > 200_000 {
			t.Fatalf("a part has %d bytes", len(page))
		}
		m := regexp.MustCompile(`bytes (\d+)–(\d+) of (\d+)`).FindStringSubmatch(page)
		if m == nil || m[1] != fmt.Sprint(size) {
			t.Fatalf("after %d bytes: %q", size, m)
		}
		_, _ = fmt.Sscan(m[2], &size)
		next = ""
		if n := regexp.MustCompile(`href="(\?offset=\d+)" rel="next"`).FindStringSubmatch(page); n != nil {
			next = n[1]
		}
	}
	if size < 5_000_000 || seen < 70 {
		t.Errorf("%d bytes in %d parts", size, seen)
	}
	if page := s.page(file + "?offset=999999999"); !strings.Contains(page, "of "+fmt.Sprint(size)) {
		t.Error("beyond the end there is no last part")
	}
	raw := s.get(file + "?raw")
	if h := raw.Header(); raw.Code != 200 || !strings.HasPrefix(h.Get("Content-Disposition"), "attachment") || !strings.HasPrefix(h.Get("Content-Security-Policy"), "sandbox") || h.Get("X-Content-Type-Options") != "nosniff" {
		t.Error(raw.Code, h)
	}
	dir := filepath.Join(s.store.Dir(), "runs", s.runID, "rollouts", one.RolloutID)
	if err := os.Symlink("/etc/hostname", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"link", "../../results.json", "..%2f..%2fresults.json", "segments", "none", "%2fetc%2fhostname"} {
		if w := s.get(s.path(one) + "/files/" + path); w.Code == http.StatusOK {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if page := s.page(s.path(one)); !strings.Contains(page, "Its folder was removed") {
		t.Error("that the folder is gone is not said")
	}
}

func TestUnknownNamesAreSaid(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	s := newSite(t, 1, "account")
	for path, want := range map[string]string{"/runs/none": "there is no run", "/runs/" + s.runID + "/rollouts/none": "there is nothing with this id", "/runs/latest~7": "the oldest run of the store is latest~0",
		"/compare/outputs?a=none&b=latest&evaluation=e": "there is no run"} {
		if w := s.get(path); w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), want) || strings.Contains(w.Body.String(), s.store.Dir()) {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	if page := s.get("/compare?a=none&b=latest").Body.String(); !strings.Contains(page, "there is no run") || strings.Contains(page, s.store.Dir()) {
		t.Errorf("a comparison with a run that is not there: %s", page)
	}
	if w := s.get("/runs/latest?sort=score"); w.Code != http.StatusFound || w.Header().Get("Location") != "/runs/"+s.runID+"?sort=score" {
		t.Error(w.Code, w.Header())
	}
	one := s.all[1]
	if w := s.get("/runs/" + s.runID + "/e/" + one.EvaluationID + "/" + url.PathEscape(one.Agent) + "/2"); w.Code != http.StatusFound || !strings.HasSuffix(w.Header().Get("Location"), one.RolloutID) {
		t.Error(w.Code, w.Header())
	}
	if err := s.store.Remove(t.Context(), runner.Run{ID: s.runID}, false); err != nil {
		t.Fatal(err)
	}
	if w := s.get("/runs/" + s.runID); w.Code != http.StatusNotFound {
		t.Error("of a run that was removed: ", w.Code)
	}
}

// From a later page of the list the page of a rollout leads back to that page.
func TestARolloutLeadsBackToThePageOfTheList(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	s := newSite(t, 26, "account") // 104 rollouts
	list := s.page("/runs/" + s.runID + "?page=2&view=rollouts")
	link := regexp.MustCompile(`href="(/runs/[^"]*/rollouts/[^"]*)"`).FindStringSubmatch(list)
	if link == nil {
		t.Fatal(list)
	}
	if page := s.page(html.UnescapeString(link[1])); !strings.Contains(page, `href="/runs/`+s.runID+`?page=2&amp;view=rollouts`) {
		t.Error("it leads to another page:", regexp.MustCompile(`<p class="crumbs">.*</p>`).FindString(page))
	}
}
