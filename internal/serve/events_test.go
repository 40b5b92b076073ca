package serve_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/runner"
	"github.com/evalrun/evalrun/schemas"
)

type eventList struct {
	Events []schemas.Event `json:"events"`
	Next   int64           `json:"next"`
	Final  bool            `json:"final"`
}

func (w *world) events(runID, query string) (l eventList) {
	w.Helper()
	w.must(http.StatusOK, "GET", "/v1/runs/"+runID+"/events?"+query, "").decode(w, &l)
	return l
}

func typesOf(events []schemas.Event) string {
	var out []string
	for _, e := range events {
		out = append(out, string(e.Type))
	}
	return strings.Join(out, " ")
}

func TestALongPollIsAnsweredByTheNextEvent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	started := w.start("greet")
	if l := w.events(started.RunID, "after=1"); len(l.Events) != 0 || l.Next != 1 || l.Final {
		t.Errorf("nothing has happened: %+v", l)
	}
	got := make(chan eventList)
	const waiters = 20
	for range waiters {
		go func() { got <- w.events(started.RunID, "after=1&wait=60&types=run.finished") }()
	}
	w.execute()
	for range waiters {
		if l := <-got; typesOf(l.Events) != "run.finished" || !l.Final || l.Events[0].Seq != l.Next {
			t.Errorf("%+v", l)
		}
	}
	all := w.events(started.RunID, "")
	if typesOf(all.Events) != "run.created rollout.started rollout.evaluated rollout.finished run.finished" || !all.Final {
		t.Errorf("%s %v", typesOf(all.Events), all.Final)
	}
	// The watermark goes on over what was not asked for.
	if l := w.events(started.RunID, "types=rollout.suspended"); len(l.Events) != 0 || l.Next != all.Next || !l.Final {
		t.Errorf("no event of the type: %+v", l)
	}
	if l := w.events(started.RunID, "types=rollout.started,run.finished&limit=1"); typesOf(l.Events) != "rollout.started" || l.Next != 2 || l.Final {
		t.Errorf("a part of them: %+v", l)
	}
	if l := w.events(started.RunID, "after=100&wait=60"); len(l.Events) != 0 || l.Next != 100 || !l.Final {
		t.Errorf("after the last one: %+v", l)
	}
}

func TestEventsThatAreFarBackAreRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var r run
	w.must(http.StatusCreated, "POST", "/v1/runs", `{"evalSet": "greet", "epochs": 400}`).decode(t, &r)
	if _, err := w.Cancel(t.Context(), r.RunID); err != nil {
		t.Fatal(err)
	}
	const all = 402 // run.created, each rollout, run.finished
	// Somebody who reads the end keeps the newest in memory.
	if l := w.events(r.RunID, fmt.Sprintf("after=%d", all-1)); typesOf(l.Events) != "run.finished" || !l.Final {
		t.Fatalf("%+v", l)
	}
	seen := int64(0)
	for after := int64(0); ; {
		l := w.events(r.RunID, fmt.Sprintf("after=%d&limit=64", after))
		for _, e := range l.Events {
			if seen++; e.Seq != seen {
				t.Fatalf("event %d after %d", e.Seq, seen-1)
			}
		}
		if after = l.Next; l.Final {
			break
		}
	}
	if seen != all {
		t.Errorf("%d events", seen)
	}
}

func TestAWaitIsOverWhenTheServerEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	path := "/v1/runs/" + w.start("greet").RunID + "/events"
	stream := w.stream(path)
	w.server.Drain()
	if rest, err := io.ReadAll(stream); err != nil || !strings.Contains(string(rest), "run.created") {
		t.Errorf("%s, %v", rest, err)
	}
	var l eventList
	w.must(http.StatusOK, "GET", path+"?after=1&wait=60", "").decode(t, &l)
	if len(l.Events) != 0 || l.Final {
		t.Errorf("%+v", l)
	}
}

// stream begins to read a stream of events. The head of the answer has come when it returns.
func (w *world) stream(path string) io.ReadCloser {
	w.Helper()
	r, err := http.NewRequest("GET", w.base+path, nil)
	if err != nil {
		w.Fatal(err)
	}
	r.Header.Set("Accept", "text/event-stream")
	r.Header.Set("Authorization", "Bearer "+w.token)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = resp.Body.Close() })
	return resp.Body
}

func TestAStreamGoesOnWhereItWas(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.execute()
	started := w.start("ask")
	path := "/v1/runs/" + started.RunID + "/events"
	stream := w.stream(path)
	last := ""
	for lines := bufio.NewScanner(stream); lines.Scan(); {
		if id, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
			last = id
		}
		if strings.Contains(lines.Text(), "event: rollout.suspended") {
			break
		}
	}
	if err := stream.Close(); err != nil { // the connection is lost
		t.Fatal(err)
	}
	w.answer(started.RunID)
	a := w.must(http.StatusOK, "GET", path, "", "Accept", "text/event-stream", "Last-Event-ID", last)
	if kind := a.Header.Get("Content-Type"); kind != "text/event-stream" || !strings.HasPrefix(a.body, "id: 4\nevent: trigger.delivered\ndata: {") ||
		!strings.Contains(a.body, "event: run.finished\n") || strings.Count(a.body, "\n\n") != strings.Count(a.body, "event: ") {
		t.Errorf("%s after %s:\n%s", kind, last, a.body)
	}
	w.must(http.StatusNoContent, "GET", path, "", "Accept", "text/event-stream", "Last-Event-ID", "8")
	w.must(http.StatusBadRequest, "GET", path, "", "Accept", "text/event-stream", "Last-Event-ID", "x")

	// Another process scores the run again: whoever comes back is told, and that it is over again.
	other, err := runner.Open(w.Store().Dir(), runner.OpenOptions{MustExist: true})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := other.Score(t.Context(), started.RunID, runner.ScoreOptions{Variables: w.variables}); err != nil {
		t.Fatal(err)
	}
	a = w.must(http.StatusOK, "GET", path, "", "Accept", "text/event-stream", "Last-Event-ID", "8")
	if !strings.HasPrefix(a.body, "id: 9\nevent: run.rescored\ndata: {") || strings.Count(a.body, "event: ") != 1 {
		t.Errorf("after it was scored again:\n%s", a.body)
	}
	w.must(http.StatusNoContent, "GET", path, "", "Accept", "text/event-stream", "Last-Event-ID", "9")
}

// answer delivers what the only trigger of a run waits for, and returns the trigger's id.
func (w *world) answer(runID string) string {
	w.Helper()
	var l struct {
		Triggers []runner.Trigger `json:"triggers"`
	}
	w.must(http.StatusOK, "GET", "/v1/triggers?runId="+runID, "").decode(w, &l)
	if len(l.Triggers) != 1 {
		w.Fatalf("%+v", l)
	}
	id := l.Triggers[0].TriggerID
	w.must(http.StatusAccepted, "POST", "/v1/triggers/"+id+"/deliver", `{"payload": {"rows": 3}}`)
	return id
}

func TestOnlySoManyStreamsAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	started := w.start("greet")
	path := "/v1/runs/" + started.RunID + "/events"
	for range 256 {
		w.stream(path)
	}
	a := w.must(http.StatusServiceUnavailable, "GET", path, "", "Accept", "text/event-stream")
	if a.Header.Get("Retry-After") == "" || !strings.Contains(a.body, "too-many-streams") {
		t.Error(a.Header, a.body)
	}
	w.must(http.StatusOK, "GET", path+"?after=1", "")
}
