package engine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/rollout"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/sqlite"
)

// Given a holder that can no longer renew, here because its store is closed: it ends its agents
// when two thirds of the lease have passed, before anybody else may start them.
func TestAnAgentEndsBeforeItsLeaseDoes(t *testing.T) {
	s, err := sqlite.Open(filepath.Join(t.TempDir(), "store"), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	const lease = 300 * time.Millisecond
	r := New(Options{Store: s, Lease: lease, Resolve: os.LookupEnv})
	ctx, cancel := context.WithCancelCause(t.Context())
	r.leases.add(store.Token{RolloutID: "rollout"}, cancel)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	stop := r.leases.keep(t.Context())
	select {
	case <-ctx.Done():
	case <-time.After(20 * lease):
		t.Fatalf("the agent still runs %v after its lease was renewed last", 20*lease)
	}
	if took := time.Since(began); !errors.Is(context.Cause(ctx), rollout.ErrLeaseLost) || took < lease/2 {
		t.Errorf("the agent ended after %v because of %v", took, context.Cause(ctx))
	}
	stop()
}

// Given rollouts of which one was cancelled and one is somebody else's by now: their agents end,
// each for its own reason, and no other.
func TestRenewEndsTheAgentsOfOthers(t *testing.T) {
	dir := t.TempDir()
	s := openIn(t, filepath.Join(dir, "store"))
	p := &poison{t, dir, s}
	p.run("r", 2, "echo '{}'")
	claims, err := s.Claim(t.Context(), "r", 2)
	if err != nil || len(claims) != 2 {
		t.Fatal(claims, err)
	}
	r := New(Options{Store: s, Resolve: os.LookupEnv})
	cancelled, kept, overtaken := claims[0].Token, claims[1].Token, store.Token{RolloutID: "overtaken"}
	ends := map[store.Token]context.Context{}
	for _, token := range []store.Token{cancelled, kept, overtaken} {
		ctx, cancel := context.WithCancelCause(t.Context())
		ends[token] = ctx
		r.leases.add(token, cancel)
	}
	if _, err := s.Cancel(t.Context(), cancelled.RolloutID); err != nil {
		t.Fatal(err)
	}
	if err := r.leases.renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	for token, want := range map[store.Token]error{cancelled: rollout.ErrCancelled, kept: nil, overtaken: rollout.ErrLeaseLost} {
		if got := context.Cause(ends[token]); !errors.Is(got, want) {
			t.Errorf("the agent of %v ended with %v, want %v", token, got, want)
		}
	}
	r.leases.remove(overtaken)
	if n := len(r.leases.rollouts()); n != 2 {
		t.Errorf("%d are held, want 2", n)
	}
}
