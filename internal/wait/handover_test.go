package wait

import (
	"errors"
	"testing"
	"time"
)

// The time that is left shrinks with every hop, is never more than was asked for, and never 0:
// nothing is started when it is over.
func TestTimeLeft(t *testing.T) {
	now := time.Date(2026, 7, 6, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name            string
		deadline, asked time.Duration
		want            int64
		over            bool
	}{
		{"no bound", 0, 0, 0, false},
		{"what was asked for", 0, 90 * time.Second, 90, false},
		{"what is left", time.Hour, 0, 3600, false},
		{"less is left than was asked for", 90500 * time.Millisecond, 5 * time.Minute, 90, false},
		{"less was asked for than is left", time.Hour, 5 * time.Minute, 300, false},
		{"less than a second", 10 * time.Millisecond, 0, 1, false},
		{"nothing", -time.Millisecond, 5 * time.Minute, 0, true},
	} {
		j := Job{TriggerID: "t", RolloutID: "r"}
		if c.deadline != 0 {
			j.Deadline = now.Add(c.deadline)
		}
		got, err := j.TimeLeft(now, c.asked)
		var retry *RetryError
		if got != c.want || c.over != errors.As(err, &retry) || c.over && !retry.NotStarted {
			t.Errorf("%s: %d, %v", c.name, got, err)
		}
		if _, err := j.Headers(now); (err != nil) != c.over {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	j := Job{TriggerID: "t", RolloutID: "r", Deadline: now.Add(time.Minute)}
	first, _ := j.Headers(now)
	later, _ := j.Headers(now.Add(1500 * time.Millisecond))
	if first["X-Mesh-Timeout"] != "60" || later["X-Mesh-Timeout"] != "58" {
		t.Errorf("%v, later %v", first, later)
	}
}

func TestTraceparent(t *testing.T) {
	j := Job{TriggerID: "t", RolloutID: "0a1b2c3d-0a1b-5c3d-8e4f-0123456789AB"}
	if got := j.Traceparent(); got != "00-0a1b2c3d0a1b5c3d8e4f0123456789ab-e3b98a4da31a127d-01" {
		t.Error(got)
	}
	if got := (Job{TriggerID: "t", RolloutID: "r"}).Traceparent(); len(got) != 55 {
		t.Error(got)
	}
}
