package model

import (
	"testing"
	"time"
)

func TestPausesDouble(t *testing.T) {
	for try := 1; try < 12; try++ {
		most := min(time.Second<<(try-1), time.Minute)
		for range 50 {
			if got := pauseBefore(try, nil, time.Now()); got < 0 || got >= most {
				t.Fatalf("try %d: %v", try, got)
			}
		}
	}
}

func TestAfterA429HalfAsManyAreAsked(t *testing.T) {
	p := NewEndpoint("p", Provider{Concurrency: 8}, Options{})
	now := time.Unix(1e9, 0)
	p.o.Now = func() time.Time { return now }
	p.overloaded()
	if p.limit() != 4 {
		t.Errorf("%d at once, want 4", p.limit())
	}
	now = now.Add(time.Minute)
	if p.limit() != 8 {
		t.Errorf("%d at once after a minute, want 8", p.limit())
	}
}
