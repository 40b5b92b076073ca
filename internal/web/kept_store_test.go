package web_test

import (
	"strings"
	"testing"
)

// The overview of a large run is kept with its results document: the page of one that nobody has opened
// is made of it, also when the run has changed since. Who comes next sees the run as it is.
func TestALargeRunThatNobodyHasOpened(t *testing.T) {
	if testing.Short() {
		t.Skip("it makes a run of 1,000 rollouts")
	}
	t.Parallel()
	s, runID := largeRun(t, 1000)
	first := (&site{TB: t, pages: pagesOf(s)}).page("/runs/" + runID)
	if !strings.Contains(first, "200 rollouts are open") {
		t.Error("the page does not say how many rollouts are open")
	}
	spoil(t, s.Dir(), "UPDATE rollouts SET score = 1 WHERE run_id = ?", runID) // nobody says so: the revision stays
	if again := (&site{TB: t, pages: pagesOf(s)}).page("/runs/" + runID); again != first {
		t.Error("the run is read although its overview is kept")
	}
	spoil(t, s.Dir(), "UPDATE runs SET revision = revision + 1 WHERE run_id = ?", runID)
	server := &site{TB: t, pages: pagesOf(s)}
	if before := server.page("/runs/" + runID); !strings.Contains(before, "the run has changed since") {
		t.Error("the page of an earlier revision does not say so")
	}
	after := server.page("/runs/" + runID)
	if after == first || !strings.Contains(after, "1.000") || strings.Contains(after, "the run has changed since") {
		t.Error("a run of another revision is not read again")
	}
	if again := (&site{TB: t, pages: pagesOf(s)}).page("/runs/" + runID); again != after {
		t.Error("what was read again is not kept")
	}
}
