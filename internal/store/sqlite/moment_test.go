package sqlite_test

import (
	"encoding/json"
	"sync"
	"testing"

	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/testenv"
)

// A run is finished with the last of its rollouts, and nobody sees the one without the other.
func TestARunIsReadAtOneMoment(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	s := open(t, t.TempDir())
	score := 1.0
	for range 100 {
		p := benchPlan(1)
		if _, err := s.CreateRun(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		var readers sync.WaitGroup
		for range 4 {
			readers.Go(func() {
				for {
					run, err := s.Run(t.Context(), p.RunID)
					if err != nil || run.Final() {
						if err != nil || run.Counts.Completed != 1 {
							t.Errorf("%+v, %v", run, err)
						}
						return
					}
					if run.Counts.Completed == 1 {
						t.Errorf("it has completed its rollout and is not final: %+v", run)
					}
				}
			})
		}
		claimAll(t, s, p.RunID, func(c store.Claim) error {
			if _, err := s.CommitSegment(t.Context(), c.Token, store.SegmentEnd{Outcome: store.OutcomeCompleted, Output: json.RawMessage("{}")}); err != nil {
				return err
			}
			return s.Finish(t.Context(), c.Token, &score)
		})
		readers.Wait()
	}
}
