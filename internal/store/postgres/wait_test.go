package postgres

import (
	"testing"
	"time"
)

// Attempts to connect can take ten seconds each: what counts is when the first of them failed.
func TestWaitingEnds(t *testing.T) {
	for _, c := range []struct {
		name     string
		failures int
		since    time.Duration
		want     bool
	}{
		{"it has only begun", fewest, 0, true},
		{"each attempt took long", fewest, time.Minute, false},
		{"it was hardly tried", 1, time.Minute, true},
	} {
		if got := wait(c.failures, time.Now().Add(-c.since), time.Minute, nil); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	closed := make(chan struct{})
	close(closed)
	if wait(10, time.Now(), time.Hour, closed) {
		t.Error("it goes on although it was closed")
	}
}
