package sqlite

import (
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/store"
)

// R23: a process whose store was migrated by a newer program writes nothing any more, renews no lease,
// and says why.
func TestAStoreThatWasMigratedMeanwhile(t *testing.T) {
	ctx := t.Context()
	dir := t.TempDir()
	s := openInternal(t, dir)
	if _, err := s.CreateRun(ctx, planOf("one")); err != nil {
		t.Fatal(err)
	}
	claims, err := s.Claim(ctx, "one", 1)
	if err != nil || len(claims) != 1 {
		t.Fatalf("%+v, %v", claims, err)
	}
	newer := openInternal(t, dir)
	if _, err := newer.write.ExecContext(ctx, "ALTER TABLE runs ADD COLUMN more TEXT"); err != nil {
		t.Fatal(err)
	}
	if _, err := newer.write.ExecContext(ctx, "PRAGMA user_version = 99"); err != nil {
		t.Fatal(err)
	}
	_, _, renewed := s.Renew(ctx, store.Tokens{})
	_, created := s.CreateRun(ctx, planOf("two"))
	for what, err := range map[string]error{"the lease": renewed, "another run": created, "the release": s.Release(ctx, claims[0].Token, 0)} {
		if err == nil || !store.IsBroken(err) || !strings.Contains(err.Error(), "a newer evalrun has migrated") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if runs, err := s.Runs(ctx); err != nil || len(runs) != 1 {
		t.Errorf("%d runs, %v", len(runs), err)
	}
}
