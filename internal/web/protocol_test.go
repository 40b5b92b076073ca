package web_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/testenv"
	"github.com/evalrun/evalrun/runner"
)

// liveEvent is one of a stream.
type liveEvent struct {
	ID, Event string
	Data      struct {
		Text     map[string]string
		Set      [][3]any
		Whole    bool
		Final    bool
		Rescored int
	}
}

// listen reads a stream, which says where it goes on, until stop is called.
func listen(t *testing.T, url, lastEventID string) (next func() liveEvent, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if lastEventID != "" {
		r.Header.Set("Last-Event-ID", lastEventID)
	}
	a, err := http.DefaultClient.Do(r)
	if err != nil || a.StatusCode != http.StatusOK {
		t.Fatal(a, err)
	}
	t.Cleanup(func() { _ = a.Body.Close() })
	return func() (e liveEvent) {
		t.Helper()
		for text := ""; ; text += line(t, a.Body) {
			head, ok := strings.CutSuffix(text, "\n\n")
			if !ok {
				continue
			}
			text = ""
			for one := range strings.SplitSeq(head, "\n") {
				name, value, _ := strings.Cut(one, ": ")
				switch name {
				case "id":
					e.ID = value
				case "event":
					e.Event = value
				case "data":
					if err := json.Unmarshal([]byte(value), &e.Data); err != nil {
						t.Fatal(err)
					}
				}
			}
			if e.Event != "" {
				return e
			}
		}
	}, cancel
}

// line reads up to the end of a line.
func line(t *testing.T, r io.Reader) string {
	t.Helper()
	var out []byte
	for one := make([]byte, 1); len(out) == 0 || out[len(out)-1] != '\n'; out = append(out, one[0]) {
		if _, err := io.ReadFull(r, one); err != nil {
			t.Fatal("the stream has ended: ", err)
		}
	}
	return string(out)
}

// A stream goes on where the browser was: after the revision of its page, or after its last event. It
// tells what has changed since, everything if the server cannot know that, and "reload" if the browser
// was away for too long.
func TestAStreamGoesOnWhereTheBrowserWas(t *testing.T) {
	t.Parallel()
	s := newSite(t, 2, "account", "ask")
	server := httptest.NewServer(s.pages)
	t.Cleanup(server.CloseClientConnections) // before it is closed, which waits for them
	t.Cleanup(server.Close)
	live := server.URL + "/runs/" + s.runID + "/live"
	_, page, _ := strings.Cut(s.page("/runs/"+s.runID), `id="t-rev">`)
	rev, _, _ := strings.Cut(page, "<")
	next, stop := listen(t, live+"?since="+rev, "")
	if e := next(); e.ID != rev || e.Event != "patch" || e.Data.Whole || len(e.Data.Set) != 0 || e.Data.Text["n-suspended"] != "4" {
		t.Errorf("a page that is of now is told %+v", e)
	}
	stop()
	for _, unknown := range []string{"", "none", "-3", "0", "1", "99999999999999999999", "888888"} { // a revision before the server has looked, or of another store
		next, stop := listen(t, live+"?since="+unknown, "")
		if e := next(); e.Event != "patch" || !e.Data.Whole || len(e.Data.Set) != len(s.all) {
			t.Errorf("since %q is told %+v", unknown, e)
		}
		stop()
	}
	var answered string
	if err := s.store.Triggers(t.Context(), s.runID, false, func(tr runner.Trigger) error {
		if answered != "" {
			return nil
		}
		answered = tr.RolloutID
		_, err := s.store.Deliver(t.Context(), tr.TriggerID, runner.Delivery{Payload: json.RawMessage(`{"approved": true}`), By: "test"})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.store.Run(t.Context(), s.runID, runner.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, last := range []string{rev, ""} { // the header says more than the URL, which stays as it was
		since := rev
		if last != "" {
			since = "1"
		}
		next, stop := listen(t, live+"?since="+since, last)
		e := next()
		if e.Event != "patch" || e.Data.Whole || len(e.Data.Set) != 1 || s.all[int(e.Data.Set[0][0].(float64))].RolloutID != answered || e.Data.Text["n-suspended"] != "3" || e.ID == rev {
			t.Errorf("who comes back is told %+v", e)
		}
		stop()
	}
	spoil(t, s.store.Dir(), "UPDATE runs SET revision = revision + 5001 WHERE run_id = ?", s.runID)
	next, stop = listen(t, live+"?since="+rev, "")
	defer stop()
	if e := next(); e.Event != "reload" || e.Data.Text["n-suspended"] != "3" || len(e.Data.Set) == 0 {
		t.Errorf("after more than 5,000 revisions: %+v", e)
	}
}

// Who looks at a run that has ended is told when it was scored again, and what has changed by that.
func TestARunIsScoredAgainWhileItIsRead(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	d := newDesk(t)
	runID := d.scoredRun("yes")
	_, page := d.do("GET", "/runs/"+runID, nil)
	if !strings.Contains(page, `data-live="/runs/`+runID+`/live"`) || !strings.Contains(page, `<li id="rescored" data-n="0" hidden>`) || !strings.Contains(page, `<span role="status">final</span>`) {
		t.Error("the page of a run that has ended is not live")
	}
	_, rev, _ := strings.Cut(page, `id="t-rev">`)
	rev, _, _ = strings.Cut(rev, "<")
	next, stop := listen(t, d.URL+"/runs/"+runID+"/live?since="+rev, "")
	defer stop()
	if e := next(); !e.Data.Final || e.Data.Rescored != 0 || len(e.Data.Set) != 0 {
		t.Errorf("first it is told %+v", e)
	}
	path := filepath.Join(t.TempDir(), "corrected.json")
	if err := os.WriteFile(path, []byte(`{"id": "x", "evaluatorTypeId": "uipath-exact-match", "evaluatorConfig": {"targetOutputKey": "say", "negated": true}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := d.store.Score(t.Context(), runID, runner.ScoreOptions{Evaluators: path}); err != nil {
		t.Fatal(err)
	}
	changed := map[float64]string{}
	for {
		e := next()
		for _, one := range e.Data.Set {
			changed[one[0].(float64)] = fmt.Sprint(one[1], " ", one[2])
		}
		if e.Data.Rescored == 1 {
			if e.Data.Text["t-verdict"] == "" || !e.Data.Final {
				t.Errorf("at last it is told %+v", e)
			}
			break
		}
	}
	_, list := d.do("GET", "/runs/"+runID+"?view=rollouts", nil)
	if len(changed) != 8 {
		t.Errorf("it is told of these alone: %v", changed)
	}
	for row, want := range changed {
		_, text, _ := strings.Cut(list, fmt.Sprintf(`data-row="%v"`, row))
		text, _, _ = strings.Cut(text, "</tr>")
		got := cells(text)
		if got["Status"]+" "+got["Score"] != want {
			t.Errorf("row %v is told as %q, and is %q %q", row, want, got["Status"], got["Score"])
		}
	}
	if !strings.Contains(list, `<li id="rescored" data-n="1">scored again <time`) {
		t.Error("the page does not say that the run was scored again")
	}
}

// unread is an answer of which the test reads one piece after the other.
type unread struct{ pieces chan string }

func (unread) Header() http.Header { return http.Header{} }
func (unread) WriteHeader(int)     {}
func (unread) Flush()              {}
func (u unread) Write(data []byte) (int, error) {
	u.pieces <- string(data)
	return len(data), nil
}

// A browser that does not read is told at once what has changed meanwhile, when it reads again. Nothing
// is kept for it, and the others do not wait for it.
func TestABrowserThatReadsSlowlyIsToldTheRestAtOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t, 2, "account", "ask")
	server := httptest.NewServer(s.pages)
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	slow, ended := unread{make(chan string)}, make(chan struct{})
	go func() {
		defer close(ended)
		s.pages.ServeHTTP(slow, httptest.NewRequestWithContext(ctx, http.MethodGet, "/runs/"+s.runID+"/live", nil))
	}()
	defer func() {
		cancel()
		for {
			select {
			case <-slow.pieces:
			case <-ended:
				return
			}
		}
	}()
	suspended := func(p map[string]any) string { return p["text"].(map[string]any)["n-suspended"].(string) }
	next := func() map[string]any { // of the slow one
		for {
			if _, data, ok := strings.Cut(<-slow.pieces, "data: "); ok {
				var p map[string]any
				if err := json.Unmarshal([]byte(data), &p); err != nil {
					t.Fatal(err)
				}
				return p
			}
		}
	}
	if p := next(); suspended(p) != "4" {
		t.Fatalf("first it is told %v", p)
	}
	quick := patches(ctx, t, server.URL+"/runs/"+s.runID+"/live")
	var waiting []string
	if err := s.store.Triggers(t.Context(), s.runID, false, func(tr runner.Trigger) error {
		waiting = append(waiting, tr.TriggerID)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for i, id := range waiting {
		if _, err := s.store.Deliver(t.Context(), id, runner.Delivery{Payload: json.RawMessage(`{"approved": true}`), By: "test"}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.store.Run(t.Context(), s.runID, runner.RunOptions{}); err != nil {
			t.Fatal(err)
		}
		for want := fmt.Sprint(len(waiting) - i - 1); suspended(<-quick) != want; { //nolint:revive // until it is told
		}
	}
	n, changed := 0, map[float64]bool{}
	for done := false; !done; n++ {
		p := next()
		for _, set := range p["set"].([]any) {
			changed[set.([]any)[0].(float64)] = true
		}
		done = suspended(p) == "0"
	}
	if n > 2 || len(changed) != len(waiting) {
		t.Errorf("it is told of %d rollouts in %d events", len(changed), n)
	}
}

// More browsers than the most are told so by an error, and read the page all the same. One that leaves
// makes room.
func TestMoreBrowsersThanTheMost(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	d := newDesk(t)
	live := d.URL + "/runs/" + d.runID + "/live"
	var leave func()
	for range 256 {
		next, stop := listen(t, live, "")
		next()
		leave = stop
	}
	if status, page := d.do("GET", "/runs/"+d.runID+"/live", nil); status != http.StatusServiceUnavailable || !strings.Contains(page, "256 browsers are told of changes") {
		t.Errorf("the next one: %d %s", status, page)
	}
	for _, path := range []string{"/", "/runs/" + d.runID, "/inbox", "/triggers"} {
		if status, page := d.do("GET", path, nil); status != http.StatusOK || !strings.Contains(page, "</html>") {
			t.Errorf("%s: %d", path, status)
		}
	}
	leave()
	for { // the server notices soon, or the test takes too long
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, live, nil)
		if err != nil {
			t.Fatal(err)
		}
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = a.Body.Close()
		if a.StatusCode == http.StatusOK {
			break
		}
	}
}
