package web_test

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/runner"
)

// spoil changes what the store has, behind its back.
func spoil(t testing.TB, storeDir, query string, args ...any) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(storeDir, "store.db")+"?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	r, err := db.ExecContext(t.Context(), query, args...)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := r.RowsAffected(); n == 0 || err != nil {
		t.Fatal(n, err)
	}
}

func TestARunIsPrunedWhileItIsRead(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	rollout := d.trigger("a").RolloutID
	_, inbox := d.do("GET", "/inbox", nil)
	told := patches(t.Context(), t, d.URL+"/runs/"+d.runID+"/live")
	<-told
	if _, err := d.store.Cancel(t.Context(), d.runID, runner.CancelOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := d.store.Remove(t.Context(), runner.Run{ID: d.runID}, false); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"", "/columns", "/live", "/rollouts/" + rollout, "/rollouts/" + rollout + "/files/segments/1.1/output.json"} {
		if status, page := d.do("GET", "/runs/"+d.runID+path, nil); status != http.StatusNotFound || !strings.Contains(page, `role="alert"`) {
			t.Errorf("%s: %d %s", path, status, page)
		}
	}
	var last map[string]any
	for p := range told {
		last = p
	}
	if last["final"] != true {
		t.Errorf("who listens was told last: %v", last)
	}
	for _, path := range []string{"/", "/inbox", "/triggers"} {
		if status, page := d.do("GET", path, nil); status != http.StatusOK || strings.Contains(page, d.runID) {
			t.Errorf("%s: %d %s", path, status, page)
		}
	}
	id := d.firstAsked(inbox)
	if status, page := d.do("POST", "/triggers/"+id+"/answer", d.form(inbox, id, "verb", "approve", "confirm", "1")); status != http.StatusNotFound || !strings.Contains(page, "runs are removed by evalrun prune") {
		t.Error("an answer for it:", status, page)
	}
}

// firstAsked is a trigger that a page has a form for.
func (d *desk) firstAsked(page string) string {
	d.Helper()
	_, id, ok := strings.Cut(page, `action="/triggers/`)
	id, _, _ = strings.Cut(id, "/")
	if !ok {
		d.Fatal("no form")
	}
	return id
}

func TestADamagedRunAmongGoodOnes(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	bad, good := d.runID, d.scoredRun("yes")
	again := newRunOf(t, d)
	spoil(t, d.store.Dir(), "UPDATE plans SET data = '{' WHERE run_id = ?", bad)
	for _, path := range []string{"", "/rollouts/x", "/columns", "/live"} {
		if status, page := d.do("GET", "/runs/"+bad+path, nil); status < 400 || !strings.Contains(page, `role="alert"`) || strings.Contains(page, "panic") {
			t.Errorf("%s of the damaged run: %d %s", path, status, page)
		}
	}
	if _, page := d.do("GET", "/runs/"+bad, nil); !strings.Contains(page, "the run "+bad+" cannot be read") {
		t.Error(page)
	}
	for path, want := range map[string]string{"/": good, "/runs/" + good: "C", "/inbox": "the run " + bad + " cannot be read", "/triggers": "the run " + bad + " cannot be read"} {
		if status, page := d.do("GET", path, nil); status != http.StatusOK || !strings.Contains(page, want) {
			t.Errorf("%s: %d, lacks %q", path, status, want)
		}
	}
	for _, path := range []string{"/inbox", "/triggers"} {
		if _, page := d.do("GET", path, nil); !strings.Contains(page, again) {
			t.Errorf("%s lacks the good run", path)
		}
	}
}

// newRunOf runs the set of the desk once more.
func newRunOf(t *testing.T, d *desk) string {
	t.Helper()
	set, err := runner.Load([]string{d.set}, runner.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	created, err := d.store.Create(t.Context(), set, runner.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.store.Run(t.Context(), created.RunID, runner.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	return created.RunID
}

// A plan that a newer evalrun has written is named as that.
func TestARunOfANewerVersion(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	spoil(t, d.store.Dir(), `UPDATE plans SET data = json_set(data, '$.planVersion', 99) WHERE run_id = ?`, d.runID)
	status, page := d.do("GET", "/runs/"+d.runID, nil)
	if status < 400 || !strings.Contains(page, "a later version of evalrun has planned it") {
		t.Error(status, page)
	}
	if status, _ := d.do("GET", "/", nil); status != http.StatusOK {
		t.Error("the list: ", status)
	}
}

func TestIDsThatAreNotThere(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	for _, path := range []string{"/runs/none", "/runs/" + d.runID + "/rollouts/none", "/runs/" + d.runID + "/rollouts/none/files/x", "/runs/" + d.runID + "/e/none/none/1", "/triggers/none/answer", "/runs/%2e%2e", "/runs/..%2f..%2fetc", "/static/none"} {
		if status, page := d.do("GET", path, nil); status != http.StatusNotFound || !strings.Contains(page, "<h1>Not Found</h1>") {
			t.Errorf("%s: %d %s", path, status, page)
		}
	}
}

// What a query says is never a reason for more than another page.
func TestQueriesThatNobodyMeans(t *testing.T) {
	t.Parallel()
	s := newSite(t, 2, "account", "ask")
	one := s.rollout("ask")
	for _, path := range []string{"/", "/inbox", "/triggers", "/runs/" + s.runID, s.path(one), s.path(one) + "/files/segments/1.1/output.json"} {
		for _, q := range []string{"page=-1", "page=99999999999999999999", "page=999", "step=-4", "offset=-1", "offset=99999999999999999999", "offset=9223372036854775807", "sort=none&status=none,none&view=none&type=none", "q=" + url.QueryEscape(strings.Repeat("\x00", 3000)), "from=%zz", "kind=%00"} {
			w := httptest.NewRecorder()
			s.pages.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path+"?"+q, nil))
			if w.Code != http.StatusOK {
				t.Errorf("%s?%.40s: %d %s", path, q, w.Code, w.Body)
			}
		}
	}
}

// An answer that does not fit says which field is wrong, and what was expected, as a person would.
func TestAnAnswerThatDoesNotFitIsSaidByField(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	_, page := d.do("GET", "/inbox?sort=most", nil)
	id := d.trigger("form").TriggerID
	for name, c := range map[string]struct {
		values []string
		want   string
	}{
		"too high":   {[]string{"f.0", "10", "f.1", "0"}, "floor: expected at most 9, got 10"},
		"no integer": {[]string{"f.0", "1.5", "f.1", "0"}, `floor: expected a whole number, got "1.5"`},
	} {
		status, body := d.do("POST", "/triggers/"+id+"/answer", d.form(page, id, append(c.values, "verb", "approve", "confirm", "1")...), "Accept", "application/json")
		var said struct{ Outcome, Text string }
		if json.NewDecoder(bytes.NewReader([]byte(body))).Decode(&said) != nil || status != http.StatusUnprocessableEntity || said.Outcome != "wrong" || !strings.Contains(said.Text, c.want) {
			t.Error(name, status, body)
		}
		status, body = d.do("POST", "/triggers/"+id+"/answer", d.form(page, id, append(c.values, "verb", "approve", "confirm", "1")...))
		if status != http.StatusUnprocessableEntity || !strings.Contains(body, strings.ReplaceAll(strings.TrimPrefix(c.want, "floor: "), `"`, "&#34;")) || !strings.Contains(body, `value="`+c.values[1]+`"`) {
			t.Error(name, "without a script:", status, body)
		}
	}
}
