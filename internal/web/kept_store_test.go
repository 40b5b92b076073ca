package web_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The overview of a large run is kept, and is read by the next server only while the run is as it was.
func TestALargeRunIsReadAgainOnlyIfItHasChanged(t *testing.T) {
	if testing.Short() {
		t.Skip("it makes a run of 1,000 rollouts")
	}
	t.Parallel()
	s, runID := largeRun(t, 1000)
	first := (&site{TB: t, pages: pagesOf(s)}).page("/runs/" + runID)
	if _, err := os.Stat(filepath.Join(s.Dir(), "runs", runID, "pages.cache")); err != nil {
		t.Fatal(err)
	}
	if again := (&site{TB: t, pages: pagesOf(s)}).page("/runs/" + runID); again != first {
		t.Error("the page of what was kept is another one")
	}
	spoil(t, s.Dir(), "UPDATE rollouts SET score = 1 WHERE run_id = ?", runID) // nobody says so: the revision stays
	if again := (&site{TB: t, pages: pagesOf(s)}).page("/runs/" + runID); again != first {
		t.Error("a run of the same revision is read again")
	}
	spoil(t, s.Dir(), "UPDATE runs SET revision = revision + 1 WHERE run_id = ?", runID)
	if again := (&site{TB: t, pages: pagesOf(s)}).page("/runs/" + runID); again == first || !strings.Contains(again, "1.000") {
		t.Error("a run of another revision is not read again")
	}
}
