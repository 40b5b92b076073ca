package sqlite

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/evalrun/evalrun/internal/store/rules"
)

// The mode of each commit is the one that its operation needs, whatever came before it. SQLite
// applies this pragma when it compiles it; a driver that kept it compiled would leave the first
// mode in force, and commits without a sync.
func TestOperationsAreSyncedAsTheyNeed(t *testing.T) {
	s := openInternal(t, t.TempDir())
	r := rand.New(rand.NewPCG(3, 3))
	for i := range 50 {
		run, want := s.Write, 2 // FULL
		if r.IntN(2) == 0 {
			run, want = s.WriteRelaxed, 1 // NORMAL
		}
		var mode int
		if err := run(t.Context(), "try", func(t *rules.Tx) error {
			return t.Conn().QueryRowContext(context.Background(), "PRAGMA synchronous").Scan(&mode)
		}); err != nil {
			t.Fatal(err)
		}
		if mode != want {
			t.Fatalf("operation %d was committed with synchronous = %d, want %d", i, mode, want)
		}
	}
}
