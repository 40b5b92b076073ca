package retry

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestBackoffDoublesUpToItsLimit(t *testing.T) {
	var got []time.Duration
	for failures := range 6 {
		got = append(got, Backoff(time.Second, 10*time.Second, failures))
	}
	want := []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 10 * time.Second, 10 * time.Second}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestTemporary(t *testing.T) {
	for status, want := range map[int]bool{400: false, 401: false, 404: false, 408: true, 409: true, 410: false, 425: true, 429: true, 500: true, 503: true} {
		if got := Temporary(status); got != want {
			t.Errorf("%d: %t", status, got)
		}
	}
}

func TestAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		name, value string
		want        time.Duration
		asked       bool
	}{
		{"Retry-After", "7", 7 * time.Second, true},
		{"Retry-After", " 0.5 ", 500 * time.Millisecond, true},
		{"Retry-After", "0", 0, true},
		{"Retry-After", "Fri, 02 Jan 2026 03:05:05 GMT", time.Minute, true},
		{"Retry-After", "Fri, 02 Jan 2026 03:03:05 GMT", 0, true},
		{"Retry-After", "Fri, 02 Jan 2099 03:03:05 GMT", longest, true},
		{"Retry-After", "1e300", longest, true},
		{"Retry-After", "Inf", longest, true},
		{"Retry-After", "NaN", 0, false},
		{"Retry-After", "-1", 0, false},
		{"Retry-After", "soon", 0, false},
		{"Retry-After", "", 0, false},
		{"Retry-After-Ms", "1500", 1500 * time.Millisecond, true},
	} {
		got, asked := After(http.Header{c.name: {c.value}}, now)
		if got != c.want || asked != c.asked {
			t.Errorf("%s: %s: %v, %t", c.name, c.value, got, asked)
		}
	}
}
