package engine

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/store"
)

// A round is done when a trigger is claimed a second time: then every due one has been asked. Only
// a runner that ends when it is idle counts rounds, and a rollout that begins ends one.
func TestRounds(t *testing.T) {
	claim := func(ids ...string) (out []store.TriggerClaim) {
		for _, id := range ids {
			out = append(out, store.TriggerClaim{Trigger: store.Trigger{ID: id}, TriggerToken: store.TriggerToken{TriggerID: id}})
		}
		return out
	}
	l := New(Options{Store: openIn(t, filepath.Join(t.TempDir(), "store")), Resolve: os.LookupEnv}).triggers
	l.noteClaimed(claim("a", "a"), false)
	if _, _, done := l.nextCheck(false); done {
		t.Error("a round is done of a runner that counts none")
	}
	clear(l.triggers)
	l.countRounds()
	l.noteClaimed(claim("a", "b"), false)
	if pause, checking, done := l.nextCheck(false); done || !checking || pause != poll {
		t.Errorf("two are being asked: pause %v, checking %v, done %v", pause, checking, done)
	}
	l.noteClaimed(claim("b"), true)
	if _, _, done := l.nextCheck(false); !done {
		t.Error("b was claimed twice, and the round is not done")
	}
	l.endRound() // a rollout has begun
	if pause, _, done := l.nextCheck(true); done || pause != 0 {
		t.Errorf("after the round: done %v, pause %v, and more is due", done, pause)
	}
	l.due = false
	l.newRound(false, l.r.o.Now().Add(time.Hour))
	if pause, _, _ := l.nextCheck(true); pause < 59*time.Minute {
		t.Errorf("the next is due in an hour, the pause is %v", pause)
	}
}
