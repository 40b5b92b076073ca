package report

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/schemas"
)

// A document of version 1 is read, and written as one of version 2.
func TestVersion1IsRead(t *testing.T) {
	r, err := Open("testdata/results-v1.json")
	if err != nil {
		t.Fatal(err)
	}
	if r.Pass != 1 || r.Summary.ScoreCompleted != nil || len(r.Statistics.Agents) != 2 || r.Statistics.Epochs != 2 {
		t.Fatalf("got %+v", r.Summary)
	}
	polite := r.Statistics.Agents[1]
	if polite.Agent != "polite" || polite.Score.N != 3 || *polite.ScoreCompleted.Mean != 0.5 || polite.Evaluators[0].ID != "says" || *polite.Evaluators[0].PassRate.Mean != 1 {
		t.Errorf("got %+v", polite)
	}
	for name, write := range writers(r) {
		if err := write(new(bytes.Buffer)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	var table, document bytes.Buffer
	const want = "; score gruff 0, polite 0.3333 (0.5 without faulted); missing: 4 evaluator errors, 4 evaluator results not run\n"
	if err := r.WriteTable(&table, everything); err != nil || !strings.Contains(table.String(), want) {
		t.Errorf("%v\n%s", err, &table)
	}
	if err := r.WriteResults(&document); err != nil {
		t.Fatal(err)
	}
	if err := schemas.Validate("results", document.Bytes()); err != nil {
		t.Error(err)
	}
}

// What is shown adds up, although each clock is cut to milliseconds.
func TestClocksAddUp(t *testing.T) {
	got := clocks(store.Clocks{Working: 1600 * time.Microsecond, Waiting: 2600 * time.Microsecond, Queued: 700 * time.Microsecond, Evaluating: 900 * time.Microsecond})
	if want := (schemas.Clocks{WallMs: 3, WorkingMs: 1, WaitingMs: 2}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
