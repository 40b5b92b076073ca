package engine_test

import (
	"database/sql"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/wait"
)

// What is played arrives when it is due, and once, whichever process looks then.
func TestPlayedJobsAreDeliveredWhenTheyAreDue(t *testing.T) {
	w := newJobWorld(t, `{"source": "fixed", "result": {"n": 1}, "after": "1h"}`, callsJob, 0, nil)
	w.play(59 * time.Minute)
	if o := w.rollout(); o.State != eval.StateSuspended || len(o.Triggers) != 1 || o.Triggers[0].State != store.TriggerWaiting {
		t.Fatalf("%s: %+v", o.State, o.Triggers)
	}
	w.store = w.openAs() // the first process is gone
	w.advance(time.Minute)
	w.work()
	w.completed()
	g := w.rollout().Triggers[0]
	got, err := w.store.Deliveries(t.Context(), g.ID)
	if err != nil || len(got) != 1 || string(got[0].Payload) != `{"n":1}` || got[0].By != wait.SourceFixed {
		t.Errorf("%+v, %v", got, err)
	}
}

// A job that its agent goes on waiting for is the same one of a sequence; the next one is another.
func TestASequenceGoesOnWithTheNextJob(t *testing.T) {
	script := `case $in in
		*'"resume":null'*) echo '{"__interrupt__": [{"id": "a-1", "value": {"name": "P", "input_arguments": {"n": 1}}}, {"id": "b-1", "value": {"name": "P", "input_arguments": {"n": 2}}}]}' ;;
		*second*) echo '{"__interrupt__": [{"id": "a-1", "value": {"name": "P", "input_arguments": {"n": 1}}}, {"id": "c-1", "value": {"name": "P", "input_arguments": {"n": 3}}}]}' ;;
		*third*) echo '{}' ;;
	esac`
	w := newJobWorld(t, `{"source": "fixed", "sequence": [{"result": "first", "after": "1h"}, {"result": "second"}, {"result": "third"}]}`, script, 0, nil)
	w.play(time.Minute)
	w.completed()
	var got []string
	for _, g := range w.rollout().Triggers {
		got = append(got, g.InterruptID+" "+string(g.Payload))
	}
	if s := strings.Join(got, ", "); s != `a-1 , b-1 "second", c-1 "third"` {
		t.Errorf("got %s", s)
	}
}

// What a job asks is played, too.
func TestAQuestionOfAJobIsPlayed(t *testing.T) {
	w := newMeshWorld(t, time.Hour)
	w.playing(`{"set": [{"place": "answers[0]", "match": {"title": "for which *"}, "result": "Monday"}]}`)
	w.asks("for which day?")
	w.play(2 * time.Minute)
	if e := w.events(); len(e) == 0 || string(e[0].Payload) != `{"value":"Monday"}` {
		t.Fatalf("%+v; the questions are %+v", e, w.questions())
	}
	q := w.questions()[0]
	var spec wait.Spec
	if err := json.Unmarshal(q.Spec, &spec); err != nil || q.Source != wait.SourceFixed || spec.Played.Place != "answers[0]" {
		t.Errorf("%+v, %v", q, err)
	}
}

// playing has the run play answers.
func (w *jobWorld) playing(answers string) {
	w.t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(w.dir, ".evalrun", "store.db")+"?_pragma=busy_timeout(10000)")
	if err != nil {
		w.t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(w.t.Context(), `UPDATE plans SET data = json_set(data, '$.answers', json(?))`, answers); err != nil {
		w.t.Fatal(err)
	}
}
