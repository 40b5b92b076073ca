package web_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/testenv"
	"github.com/evalrun/evalrun/runner"
)

// The list of runs has the scores of a set as a line, leads two marked runs to their comparison with
// the older one as the baseline, and shows a damaged run in its row.
func TestTheListOfRuns(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	first, second := d.scoredRun("yes"), d.scoredRun("no")
	_, page := d.do("GET", "/", nil)
	if n := strings.Count(page, `<svg class="spark"`); n != 2 {
		t.Errorf("%d runs of the set have a trend", n)
	}
	for _, want := range []string{"this is number 1", "this is number 2", `name="run" value="` + first + `"`, `<button id="compare">`} {
		if !strings.Contains(page, want) {
			t.Errorf("the list lacks %q", want)
		}
	}
	for _, marked := range [][]string{{first, second}, {second, first}} {
		if code, to := d.leads("/compare?" + url.Values{"run": marked}.Encode()); code != http.StatusFound || to != "/compare?a="+first+"&b="+second {
			t.Errorf("%d to %s", code, to)
		}
	}
	if _, to := d.leads("/compare?run=" + first); to != "/compare?a="+first {
		t.Error("one run alone leads to", to)
	}
	if code, _ := d.leads("/compare?run=none"); code != http.StatusNotFound {
		t.Error("a run that is not there:", code)
	}
	bad := d.scoredRun("yes")
	spoil(t, d.store.Dir(), "UPDATE plans SET data = '{' WHERE run_id = ?", bad)
	_, page = d.do("GET", "/", nil)
	if strings.Count(page, "cannot be read: ") != 1 || strings.Contains(page, `value="`+bad+`"`) || !strings.Contains(page, `value="`+second+`"`) {
		t.Error("a damaged run is not shown as one in its row")
	}
}

// The list of runs shows those of one eval set, says what has become of the rollouts of each run, and how
// and from which commit it was started.
func TestTheListOfRunsIsFilteredByItsSets(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	d := newDesk(t)
	run := d.scoredRun("yes")
	rows := func(query string) (ids []string) {
		_, page := d.do("GET", "/"+query, nil)
		for _, m := range regexp.MustCompile(`name="run" value="([^"]+)"`).FindAllStringSubmatch(page, -1) {
			ids = append(ids, m[1])
		}
		return ids
	}
	for query, want := range map[string][]string{"": {run, d.runID}, "?set=c": {run}, "?set=s": {d.runID}, "?set=c&status=suspended": nil, "?set=none": nil, "?set=c&q=C": {run},
		"?q=nightly": {run}, "?q=Billing-": {run}, "?q=" + strings.ToUpper(run): {run}, "?q=nowhere": nil} {
		if got := rows(query); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", query, got, want)
		}
	}
	_, page := d.do("GET", "/?set=c", nil)
	for _, want := range []string{`<option value="c" selected>C</option>`, `<option value="s">S</option>`, ` 6 passed<`, ` 2 failed<`, `aria-label="6 passed, 2 failed"`} {
		if !strings.Contains(page, want) {
			t.Errorf("the list lacks %q", want)
		}
	}
	// It is counted again when the run has changed, and only then.
	_, page = d.do("GET", "/?set=s", nil)
	if !strings.Contains(page, `aria-label="3 suspended"`) {
		t.Error("before an answer", page)
	}
	if _, err := d.store.Deliver(t.Context(), d.trigger("form").TriggerID, runner.Delivery{Payload: json.RawMessage(`1`)}); err != nil {
		t.Fatal(err)
	}
	d.work()
	if _, page = d.do("GET", "/?set=s", nil); !strings.Contains(page, `aria-label="2 suspended, 1 unscored"`) {
		t.Error("after it", page)
	}
}

// leads is where a page sends its reader.
func (d *desk) leads(path string) (code int, to string) {
	d.Helper()
	r, err := http.NewRequestWithContext(d.Context(), http.MethodGet, d.URL+path, nil)
	if err != nil {
		d.Fatal(err)
	}
	a, err := (&http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}).Do(r)
	if err != nil {
		d.Fatal(err)
	}
	_ = a.Body.Close() // only where it leads is of interest
	return a.StatusCode, a.Header.Get("Location")
}

// A delivery that has come before what it is for is shown until something takes it.
func TestParkedDeliveriesAreShown(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	if _, page := d.do("GET", "/triggers", nil); strings.Contains(page, "Parked deliveries") {
		t.Error("there is nothing parked, and it is shown")
	}
	if _, err := d.store.Deliver(t.Context(), "external/<b>key", runner.Delivery{Payload: json.RawMessage(`1`), By: "somebody"}); err != nil {
		t.Fatal(err)
	}
	_, page := d.do("GET", "/triggers", nil)
	for _, want := range []string{"Parked deliveries", "&lt;b&gt;key", "somebody", "Kept until"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

// How a run was started is in the list also after an answer, when its results document is of an earlier
// revision; its scores are not.
func TestTheListSaysHowARunWasStartedAfterAnAnswer(t *testing.T) {
	t.Parallel()
	d, _ := factsDesk(t)
	d.resume()
	commit := d.document().GitCommit[:10]
	row := func() string {
		_, page := d.do("GET", "/", nil)
		return page
	}
	if page := row(); !strings.Contains(page, commit) || strings.Contains(page, "not up to date") {
		t.Fatal("before the answer", page)
	}
	if _, err := d.store.Deliver(t.Context(), d.trigger("ask").TriggerID, runner.Delivery{Payload: json.RawMessage(`1`)}); err != nil {
		t.Fatal(err)
	}
	if page := row(); !strings.Contains(page, commit) || !strings.Contains(page, "not up to date") {
		t.Error("after the answer", page)
	}
}
