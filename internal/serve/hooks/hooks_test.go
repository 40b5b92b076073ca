package hooks

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/serve/servetest"
	"github.com/evalrun/evalrun/internal/service"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/sqlite"
	"github.com/evalrun/evalrun/internal/webhook"
	"github.com/evalrun/evalrun/runner"
)

// world is a store with a server of webhooks.
type world struct {
	*testing.T
	runs   *runner.Store
	store  *sqlite.Store
	key    webhook.Key
	server *httptest.Server
}

func newWorld(t *testing.T) *world {
	t.Helper()
	st, err := runner.Open(t.TempDir(), runner.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	secrets := servetest.Watch(t, st.Dir())
	log := slog.New(slog.NewTextHandler(secrets.Writer("the log", t.Output()), nil))
	h, err := New(Options{Service: service.New(st, service.Config{}, service.Options{}), MaxBody: 4 << 10, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{T: t, runs: st, store: st.Internal(), server: httptest.NewUnstartedServer(h)}
	w.server.Listener = secrets.Listener(w.server.Listener)
	w.server.Start()
	t.Cleanup(w.server.Close)
	if w.key, err = webhook.LoadKey(st.Dir()); err != nil {
		t.Fatal(err)
	}
	return w
}

// suspended makes a rollout that waits for a job which evalrun asks for, and returns the trigger.
func (w *world) suspended() string {
	w.Helper()
	ctx, runID := context.Background(), store.NewRunID()
	rollout := store.RolloutID(runID, "e", "a", 1)
	_, err := w.store.CreateRun(ctx, store.Plan{
		RunID: runID, EvaluationSetID: "set", Data: json.RawMessage(`{}`), Evaluations: []store.Evaluation{{ID: "e", Data: json.RawMessage(`{}`)}},
		Rollouts: []store.PlannedRollout{{ID: rollout, Agent: "a", Epoch: 1, AcceptsFaults: true}},
	})
	if err != nil {
		w.Fatal(err)
	}
	claims, err := w.store.Claim(ctx, runID, 1)
	if err != nil || len(claims) != 1 {
		w.Fatal(claims, err)
	}
	if _, err := w.store.CommitSegment(ctx, claims[0].Token, store.SegmentEnd{Outcome: store.OutcomeSuspended, Triggers: []store.NewTrigger{
		{InterruptID: "i", Type: "JOB", Name: "JOB", Source: "http", ItemKey: "job", Checked: true, Spec: json.RawMessage(`{}`)},
	}}); err != nil {
		w.Fatal(err)
	}
	return store.TriggerID(rollout, "i", 0, 0)
}

// url is the webhook of a trigger.
func (w *world) url(triggerID string) string {
	w.Helper()
	url, err := w.key.URL(w.server.URL, triggerID)
	if err != nil {
		w.Fatal(err)
	}
	return url
}

func (w *world) post(url, body string) (status int, answer string) {
	w.Helper()
	resp, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		w.Error(err)
		return 0, ""
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		w.Error(err)
	}
	if resp.StatusCode >= 400 && resp.Header.Get("Content-Type") != "application/problem+json" {
		w.Errorf("%d comes as %s", resp.StatusCode, resp.Header.Get("Content-Type"))
	}
	return resp.StatusCode, string(text)
}

func (w *world) trigger(id string) store.Trigger {
	w.Helper()
	g, err := w.store.Trigger(context.Background(), id)
	if err != nil {
		w.Fatal(err)
	}
	return g
}

// The first that is posted counts, what comes again is a duplicate, and the job is left alone.
func TestAJobAnswers(t *testing.T) {
	w := newWorld(t)
	id := w.suspended()
	if status, answer := w.post(w.url(id), ` {"n": 9007199254740993} `); status != http.StatusAccepted || !strings.Contains(answer, `"accepted"`) {
		t.Fatalf("got %d %s", status, answer)
	}
	g := w.trigger(id)
	if g.State != store.TriggerFired || string(g.Payload) != `{"n":9007199254740993}` {
		t.Errorf("got %s %s", g.State, g.Payload)
	}
	for _, again := range []string{w.url(id), w.url(id) + "/fail"} {
		if status, answer := w.post(again, `{"message":"no"}`); status != http.StatusOK || !strings.Contains(answer, `"duplicate"`) {
			t.Errorf("again: got %d %s", status, answer)
		}
	}
	claims, err := w.store.ClaimTriggers(context.Background(), "", 1)
	if err != nil || len(claims) > 0 {
		t.Errorf("the job is asked for or cancelled: %+v, %v", claims, err)
	}
	all, err := w.store.Deliveries(context.Background(), id)
	if err != nil || len(all) != 3 || all[0].By != "webhook" {
		t.Errorf("got %+v, %v", all, err)
	}
}

func TestAJobFails(t *testing.T) {
	w := newWorld(t)
	id := w.suspended()
	if status, answer := w.post(w.url(id)+"/fail", `{"message":"out of paper"}`); status != http.StatusAccepted {
		t.Fatalf("got %d %s", status, answer)
	}
	if g := w.trigger(id); g.State != store.TriggerFaulted || g.Fault == nil || g.Fault.Message != "out of paper" {
		t.Errorf("got %+v", g)
	}
}

// Nothing of what is wrong is taken, and the job may try again.
func TestWhatIsNotTaken(t *testing.T) {
	w := newWorld(t)
	id, other := w.suspended(), newWorld(t)
	foreign, err := other.key.Token(id)
	if err != nil {
		t.Fatal(err)
	}
	unknown := w.url(uuid.NewString())
	for name, c := range map[string]struct {
		url, body string
		status    int
		says      string
	}{
		"no token":               {w.server.URL + webhook.Path, `1`, 404, "no such webhook"},
		"another store's token":  {w.server.URL + webhook.Path + foreign, `1`, 404, "no such webhook"},
		"the id of the trigger":  {w.server.URL + webhook.Path + id, `1`, 404, "no such webhook"},
		"a run that was removed": {unknown, `1`, 404, "no such webhook"},
		"another path":           {w.url(id) + "/failed", `1`, 404, "no such webhook"},
		"a path below":           {w.url(id) + "/fail/x", `1`, 404, "no such webhook"},
		"nothing":                {w.url(id), " \n", 400, "got nothing"},
		"half a document":        {w.url(id), `{"a":`, 400, "JSON"},
		"two documents":          {w.url(id), `1 2`, 400, "JSON"},
		"not UTF-8":              {w.url(id), "\"\xff\"", 400, "UTF-8"},
		"a key given twice":      {w.url(id), `{"a":1,"a":2}`, 400, "duplicate"},
		"too deep":               {w.url(id), strings.Repeat("[", 1500) + strings.Repeat("]", 1500), 400, "deep"},
		"too large":              {w.url(id), `"` + strings.Repeat("x", 5<<10) + `"`, 413, "at most 4096 bytes"},
		"no message":             {w.url(id) + "/fail", `{}`, 400, "message"},
		"an empty message":       {w.url(id) + "/fail", `{"message":" "}`, 400, "message"},
		"no text":                {w.url(id) + "/fail", `{"message":1}`, 400, "message"},
		"no object":              {w.url(id) + "/fail", `"out of paper"`, 400, "message"},
	} {
		status, answer := w.post(c.url, c.body)
		if status != c.status || !strings.Contains(answer, c.says) {
			t.Errorf("%s: got %d %s", name, status, answer)
		}
		if strings.Contains(answer, redact.WebhookPrefix) {
			t.Errorf("%s: the answer has a token: %s", name, answer)
		}
	}
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPut, http.MethodDelete} {
		req, _ := http.NewRequest(method, w.url(id), strings.NewReader(`1`))
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusMethodNotAllowed || resp.Header.Get("Allow") != http.MethodPost {
			t.Errorf("%s: got %d", method, resp.StatusCode)
		}
	}
	if g := w.trigger(id); g.State != store.TriggerWaiting {
		t.Errorf("the trigger is %s", g.State)
	}
	if all, err := w.store.Deliveries(context.Background(), id); err != nil || len(all) > 0 {
		t.Errorf("kept: %+v, %v", all, err)
	}
}

func TestWhatComesTooLate(t *testing.T) {
	w := newWorld(t)
	id := w.suspended()
	if _, err := w.store.Cancel(context.Background(), w.trigger(id).RunID); err != nil {
		t.Fatal(err)
	}
	if status, answer := w.post(w.url(id), `1`); status != http.StatusGone || !strings.Contains(answer, "late") {
		t.Errorf("got %d %s", status, answer)
	}
	if all, err := w.store.Deliveries(context.Background(), id); err != nil || len(all) != 1 || all[0].Disposition != store.Late {
		t.Errorf("kept: %+v, %v", all, err)
	}
}

// Of fifty that are posted at once exactly one is accepted, and what the trigger has is that one.
func TestAcceptedOnce(t *testing.T) {
	w := newWorld(t)
	id := w.suspended()
	var mu sync.Mutex
	counts, accepted := map[int]int{}, ""
	var posts sync.WaitGroup
	for i := range 50 {
		posts.Go(func() {
			body, _ := json.Marshal(i)
			status, _ := w.post(w.url(id), string(body))
			mu.Lock()
			defer mu.Unlock()
			if counts[status]++; status == http.StatusAccepted {
				accepted = string(body)
			}
		})
	}
	posts.Wait()
	if counts[http.StatusAccepted] != 1 || counts[http.StatusOK] != 49 {
		t.Errorf("got %v", counts)
	}
	if g := w.trigger(id); string(g.Payload) != accepted {
		t.Errorf("accepted was %s, the trigger has %s", accepted, g.Payload)
	}
}

// Nothing of a token is in the store, whatever was posted to it.
func TestNoTokenIsStored(t *testing.T) {
	w := newWorld(t)
	id := w.suspended()
	token, err := w.key.Token(id)
	if err != nil {
		t.Fatal(err)
	}
	if status, _ := w.post(w.url(id), `1`); status != http.StatusAccepted {
		t.Fatalf("got %d", status)
	}
	secret := token[len(redact.WebhookPrefix)+22:] // behind the id
	err = filepath.WalkDir(w.store.Dir(), func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if strings.Contains(string(data), secret) || strings.Contains(string(data), redact.WebhookPrefix) {
			t.Errorf("%s has the token", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
