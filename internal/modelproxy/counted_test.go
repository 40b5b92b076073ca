package modelproxy

import (
	"errors"
	"net/http"
	"strings"
	"testing"
)

// The call after the one that was too much is refused, and does not reach the provider.
func TestNoCallAfterTheLimit(t *testing.T) {
	asked, counted := 0, 0
	server := provider(t, func(w http.ResponseWriter, r *http.Request) {
		asked++
		canned("text/event-stream", chatStream, 1000)(w, r)
	})
	s := open(t, start(t), Upstream{URL: server.URL, Key: realKey, Counted: func(c Call) error {
		if counted += int(c.OutputTokens); counted > 30 {
			return errors.New("60 tokens are too many")
		}
		return nil
	}})
	for i, want := range []int{200, 200, 402, 402} {
		got := post(t, s, chatPath, `{"model":"m"}`)
		if got.status != want || want == 402 && !strings.Contains(got.body, "60 tokens are too many") {
			t.Errorf("call %d: got %+v", i+1, got)
		}
	}
	if u := s.Usage(); asked != 2 || counted != 60 || u.Main.Calls != 2 || s.Failure() != nil {
		t.Errorf("%d calls, %d counted, %+v, %v", asked, counted, u, s.Failure())
	}
}
