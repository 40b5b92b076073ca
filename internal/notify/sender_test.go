package notify

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/sqlite"
	"github.com/evalrun/evalrun/internal/testenv"
	"github.com/evalrun/evalrun/internal/wait"
)

// world is a store with a clock, and a run whose events targets are told of.
type world struct {
	*testing.T
	store   *sqlite.Store
	targets Targets
	runID   string

	mu      sync.Mutex
	now     time.Time
	givenUp []string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, runID: store.NewRunID(), now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	var err error
	if w.store, err = sqlite.Open(t.TempDir(), store.Options{Now: w.Now}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.store.Close() })
	return w
}

func (w *world) Now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *world) advance(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

// finish makes a run that is over at once: one notification for each target.
func (w *world) finish() {
	w.Helper()
	w.runID = store.NewRunID()
	if _, err := w.store.CreateRun(context.Background(), store.Plan{RunID: w.runID, Data: json.RawMessage(`{}`), Notify: w.targets.ForStore()}); err != nil {
		w.Fatal(err)
	}
}

const password = "open-sesame-42"

// parcel tells of an event in two messages.
func (w *world) parcel(_ context.Context, n store.Notification) (Parcel, error) {
	target, ok := w.targets.Find(n.Target)
	if !ok {
		return Parcel{}, ErrNotHere
	}
	p := Parcel{Target: target, Dir: w.store.Dir(), Redact: redact.New(map[string]string{"PASSWORD": password})}
	p.Resolve = func(name string) (string, bool) {
		return map[string]string{"SECRET": testSecret, "PASSWORD": password}[name], true
	}
	for i, kind := range []Kind{Finished, Question} {
		p.Messages = append(p.Messages, Message{ID: MessageID(n.RunID, n.Seq, fmt.Sprint(i)), Kind: kind, Source: "/stores/s/runs/" + n.RunID,
			Type: map[Kind]string{Finished: TypeFinished, Question: TypeQuestion}[kind], Time: n.CreatedAt, Data: json.RawMessage(`{"n":1}`)})
	}
	return p, nil
}

func (w *world) sender() *Sender {
	return New(Options{Store: w.store, Parcel: w.parcel, Now: w.Now, Logger: slog.New(slog.DiscardHandler),
		GivenUp: func(_ store.Notification, target, why string) { w.givenUp = append(w.givenUp, target+": "+why) }})
}

func (w *world) flush() {
	w.Helper()
	if err := w.sender().Flush(context.Background()); err != nil {
		w.Fatal(err)
	}
}

func (w *world) undelivered() []store.Notification {
	w.Helper()
	all, err := w.store.Undelivered(context.Background(), w.runID)
	if err != nil {
		w.Fatal(err)
	}
	return all
}

func webhook(url string) Target {
	return Target{URL: url, Secret: "${SECRET}", Events: []Kind{Suspended, Question, Finished}, Timeout: wait.Duration(10 * time.Second)}
}

func TestDelivered(t *testing.T) {
	w := newWorld(t)
	r := newReceiver(t, w.Now)
	w.targets = Targets{webhook(r.URL + "/hook")}
	w.finish()
	w.flush()
	if got := r.types(); !slices.Equal(got, []string{"run.finished", "question.asked"}) {
		t.Errorf("got %q", got)
	}
	if r.got[0].Time != w.Now() || string(r.got[0].Data) != `{"n":1}` || r.got[0].Source != "/stores/s/runs/"+w.runID {
		t.Errorf("got %+v", r.got[0])
	}
	if left := w.undelivered(); len(left) > 0 {
		t.Errorf("left: %+v", left)
	}
	w.flush()
	if n := len(r.types()); n != 2 {
		t.Errorf("%d messages after another round", n)
	}
}

// A target gets only the kinds that it wants.
func TestKinds(t *testing.T) {
	w := newWorld(t)
	r := newReceiver(t, w.Now)
	target := webhook(r.URL)
	target.Events = []Kind{Question, Finished}
	w.targets = Targets{target}
	w.targets[0].Events = []Kind{Finished}
	w.finish()
	w.flush()
	if got := r.types(); !slices.Equal(got, []string{"run.finished"}) {
		t.Errorf("got %q", got)
	}
}

// While one target does not answer, another one is told; and what else waits for the first costs
// one request a round.
func TestTargetsDoNotWaitForEachOther(t *testing.T) {
	w := newWorld(t)
	slow, quick := newReceiver(t, w.Now), newReceiver(t, w.Now)
	hang, asked := make(chan struct{}), make(chan struct{}, 100)
	slow.answers(func(rw http.ResponseWriter, _ *http.Request) {
		asked <- struct{}{}
		<-hang
		rw.WriteHeader(500)
	})
	w.targets = Targets{webhook(slow.URL), webhook(quick.URL)}
	for range 20 {
		w.finish()
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.flush()
	}()
	testenv.Receive(t, asked)
	if !testenv.Eventually(func() bool { return len(quick.types()) == 40 }) {
		t.Errorf("the quick one was told %d times", len(quick.types()))
	}
	close(hang)
	testenv.Receive(t, done)
	if n := len(slow.types()); n != 2 { // two batches of 16
		t.Errorf("the slow one was asked %d times", n)
	}
}

// A sender that is ended leaves what it was sending for the next one, and does not count it.
func TestEnded(t *testing.T) {
	w := newWorld(t)
	r := newReceiver(t, w.Now)
	asked, hang := make(chan struct{}, 10), make(chan struct{})
	r.answers(func(http.ResponseWriter, *http.Request) { asked <- struct{}{}; <-hang })
	w.targets = Targets{webhook(r.URL)}
	w.finish()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.sender().Run(ctx, nil) }()
	testenv.Receive(t, asked)
	cancel()
	if err := testenv.Receive(t, done); err != nil {
		t.Error(err)
	}
	close(hang)
	if left := w.undelivered(); len(left) != 1 || left[0].Attempts != 0 || left[0].LastError != "" {
		t.Fatalf("left %+v", left)
	}
	r.answers(nil)
	w.flush()
	if ids := r.ids(); len(ids) != 3 || ids[0] != ids[1] {
		t.Errorf("ids %q", ids)
	}
}

func TestCommand(t *testing.T) {
	w := newWorld(t)
	command := func(script string) Target {
		return Target{Command: []string{"sh", "-c", script}, Events: []Kind{Finished}, Timeout: wait.Duration(10 * time.Second)}
	}
	slow := command("sleep 1000 & sleep 1000")
	slow.Timeout = wait.Duration(100 * time.Millisecond)
	w.Setenv("EVALRUN_SOMETHING", "of evalrun's own")
	w.targets = Targets{
		command(`cat >got.json; env >env.txt`), command(`true`), slow, command(`echo "out of $0 ` + password + `" >&2; exit 3`),
		{Command: []string{"no-such-program-anywhere"}, Events: []Kind{Finished}, Timeout: wait.Duration(time.Second)},
	}
	w.finish()
	began := time.Now()
	w.flush()
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("it took %s", took)
	}
	var e received
	if err := json.Unmarshal([]byte(testenv.ReadFile(t, w.store.Dir(), "got.json")), &e); err != nil || e.Type != TypeFinished || e.SpecVersion != "1.0" {
		t.Errorf("got %+v, %v", e, err)
	}
	if env, err := os.ReadFile(filepath.Join(w.store.Dir(), "env.txt")); err != nil || strings.Contains(string(env), "EVALRUN_SOMETHING") {
		t.Errorf("%s, %v", env, err)
	}
	var why []string
	for _, n := range w.undelivered() {
		why = append(why, n.LastError)
	}
	slices.Sort(why)
	want := []string{`no-such-program-anywhere: it could not be started: exec: "no-such-program-anywhere": executable file not found in $PATH`,
		`sh -c echo "out of $0 [redacted:PASSWORD]" >&2; exit 3: it ended with exit status 3: out of sh [redacted:PASSWORD]`,
		"sh -c sleep 1000 & sleep 1000: it was ended after 100ms"}
	if !slices.Equal(why, want) {
		t.Errorf("got %q", why)
	}
}

// What this process cannot send is left for another, and does not count.
func TestNotHere(t *testing.T) {
	w := newWorld(t)
	r := newReceiver(t, w.Now)
	w.targets = Targets{webhook(r.URL)}
	w.finish()
	known := w.targets
	w.targets = nil
	w.flush()
	if left := w.undelivered(); len(left) != 1 || left[0].Attempts != 0 || !left[0].DueAt.Equal(w.Now().Add(later)) {
		t.Fatalf("left %+v", left)
	}
	w.advance(later)
	w.targets = known
	w.flush()
	if n := len(r.types()); n != 2 {
		t.Errorf("got %d messages", n)
	}
	w.finish()
	w.targets = nil
	w.advance(leftAtMost + time.Second)
	w.flush()
	if left := w.undelivered(); len(left) != 1 || !left[0].DueAt.IsZero() || len(w.givenUp) != 1 {
		t.Errorf("left %+v, said %q", left, w.givenUp)
	}
}

// A sender that runs sends what comes, and what becomes due.
func TestRun(t *testing.T) {
	w := newWorld(t)
	r := newReceiver(t, time.Now)
	w.targets = Targets{webhook(r.URL)}
	s := New(Options{Store: w.store, Parcel: w.parcel, Logger: slog.New(slog.DiscardHandler)})
	w.advance(time.Since(w.Now()))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done, drain := make(chan error, 1), make(chan struct{})
	go func() { done <- s.Run(ctx, drain) }()
	for i := range 3 {
		w.finish()
		if !testenv.Eventually(func() bool { return len(r.types()) == 2*(i+1) }) {
			t.Fatalf("got %q", r.types())
		}
	}
	asked, hang := make(chan struct{}, 10), make(chan struct{})
	r.answers(func(http.ResponseWriter, *http.Request) { asked <- struct{}{}; <-hang })
	w.finish()
	testenv.Receive(t, asked)
	close(drain) // while a message is being sent, which is not broken off
	close(hang)
	if err := testenv.Receive(t, done); err != nil {
		t.Error(err)
	}
	if ids := r.ids(); len(ids) != 8 || ids[6] == ids[7] || len(w.undelivered()) > 0 {
		t.Errorf("ids %q, left %+v", ids, w.undelivered())
	}
}
