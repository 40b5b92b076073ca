package meshprovider

import (
	"log/slog"
	"testing"
)

// A job that is claimed again while this agent puts it down is looked at once more: the registry has
// this agent down for it, and would wait for its lease to lapse.
func TestAJobThatIsClaimedWhileItIsPutDown(t *testing.T) {
	p := &provider{o: Options{Log: slog.New(slog.DiscardHandler)}, inHand: map[string]*job{}}
	j := newJob(p, "a", "run")
	p.inHand["a"] = j
	p.take(t.Context(), "a", "")
	next := p.putDown(j)
	if next == nil || next == j || next.runID != "" || p.inHand["a"] != next {
		t.Fatalf("the claim is lost: %+v", next)
	}
	if p.putDown(next) != nil || len(p.inHand) != 0 {
		t.Error("a job that was claimed once is looked at for ever")
	}
}
