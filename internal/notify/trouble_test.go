package notify

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/testenv"
	"github.com/evalrun/evalrun/internal/wait"
)

// Whatever is wrong with a receiver, it is told again, with the same id, until it has taken it; what
// it has taken is not sent again.
func TestReceiversInTrouble(t *testing.T) {
	testenv.NeedSlow(t)
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(code)
			_, _ = w.Write([]byte("no \x1b[31m" + password))
		}
	}
	for name, answer := range map[string]http.HandlerFunc{
		"500": status(500), "404": status(404), "301": status(301), "302": status(302), "307": status(307), "308": status(308), "401": status(401), "429": status(429),
		"no answer": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			r := newReceiver(t, w.Now)
			r.answers(answer)
			w.targets = Targets{webhook(r.URL + "/x?key=${PASSWORD}")}
			w.finish()
			w.flush()
			left := w.undelivered()
			if len(r.types()) != 1 || len(left) != 1 || left[0].Attempts != 1 || !left[0].DueAt.Equal(w.Now().Add(pauses[0])) {
				t.Fatalf("%d requests, left %+v", len(r.types()), left)
			}
			if why := left[0].LastError; strings.Contains(why, password) || strings.Contains(why, "\x1b") || !strings.HasPrefix(why, r.URL+": ") {
				t.Errorf("it says %q", why)
			}
			w.flush()
			if n := len(r.types()); n != 1 {
				t.Errorf("%d requests before its time", n)
			}
			w.advance(pauses[0])
			r.answers(nil)
			w.flush()
			ids := r.ids()
			if len(ids) != 3 || ids[0] != ids[1] || ids[1] == ids[2] || len(w.undelivered()) > 0 {
				t.Errorf("ids %q, left %+v", ids, w.undelivered())
			}
		})
	}
}

// What was told in part goes on with the next message.
func TestInParts(t *testing.T) {
	w := newWorld(t)
	r := newReceiver(t, w.Now)
	r.answers(func(rw http.ResponseWriter, _ *http.Request) {
		if len(r.types()) == 2 {
			rw.WriteHeader(503)
		}
	})
	w.targets = Targets{webhook(r.URL)}
	w.finish()
	w.flush()
	w.advance(pauses[0])
	w.flush()
	if got := r.types(); !slices.Equal(got, []string{"run.finished", "question.asked", "question.asked"}) || len(w.undelivered()) > 0 {
		t.Errorf("got %q, left %+v", got, w.undelivered())
	}
}

func TestADownTargetIsGivenUpInTheEnd(t *testing.T) {
	w := newWorld(t)
	r := newReceiver(t, w.Now)
	w.targets = Targets{webhook(r.URL)}
	r.Close()
	w.finish()
	var waited time.Duration
	for range len(pauses) + 1 {
		w.flush()
		if left := w.undelivered(); len(left) == 1 && !left[0].DueAt.IsZero() {
			waited += left[0].DueAt.Sub(w.Now())
			w.advance(left[0].DueAt.Sub(w.Now()))
		}
	}
	left := w.undelivered()
	if len(left) != 1 || !left[0].DueAt.IsZero() || left[0].Attempts != len(pauses)+1 || !strings.Contains(left[0].LastError, "refused") {
		t.Errorf("left %+v", left)
	}
	if waited < 3*24*time.Hour || waited > 4*24*time.Hour {
		t.Errorf("it was tried for %s", waited)
	}
	if len(w.givenUp) != 1 || !strings.HasPrefix(w.givenUp[0], r.URL) {
		t.Errorf("said: %q", w.givenUp)
	}
}

// 410 says that the receiver wants no more of it.
func TestGone(t *testing.T) {
	w := newWorld(t)
	r := newReceiver(t, w.Now)
	r.answers(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusGone) })
	w.targets = Targets{webhook(r.URL)}
	w.finish()
	w.flush()
	if left := w.undelivered(); len(left) != 1 || !left[0].DueAt.IsZero() || len(w.givenUp) != 1 {
		t.Errorf("left %+v, said %q", left, w.givenUp)
	}
}

// No part of a secret is left where what a target says is cut.
func TestWhatIsQuotedIsRedactedFirst(t *testing.T) {
	testenv.NeedSlow(t)
	w := newWorld(t)
	r := newReceiver(t, w.Now)
	w.targets = Targets{webhook(r.URL)}
	for at := quoted - 2*len(password); at < quoted+2; at++ {
		r.answers(func(rw http.ResponseWriter, _ *http.Request) {
			rw.WriteHeader(500)
			_, _ = rw.Write([]byte(strings.Repeat("x", at) + password))
		})
		w.finish()
		w.flush()
		f := &failure{err: errors.New("it failed"), quote: []byte(password + strings.Repeat("x", at)), end: true}
		for _, text := range []string{w.undelivered()[0].LastError, f.text(redact.New(map[string]string{"PASSWORD": password}))} {
			if strings.Contains(text, password[:4]) || strings.Contains(text, password[len(password)-4:]) || len(text) > quoted+100 {
				t.Errorf("%d: %s", at, text)
			}
		}
	}
}

func TestRetryAfter(t *testing.T) {
	w := newWorld(t)
	r := newReceiver(t, w.Now)
	r.answers(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Retry-After", "600")
		rw.WriteHeader(http.StatusServiceUnavailable)
	})
	w.targets = Targets{webhook(r.URL)}
	w.finish()
	w.flush()
	if left := w.undelivered(); len(left) != 1 || !left[0].DueAt.Equal(w.Now().Add(10*time.Minute)) {
		t.Errorf("left %+v", left)
	}
}

func TestASlowReceiverIsLeft(t *testing.T) {
	w := newWorld(t)
	r := newReceiver(t, w.Now)
	hang := make(chan struct{})
	defer close(hang)
	r.answers(func(http.ResponseWriter, *http.Request) { <-hang })
	target := webhook(r.URL)
	target.Timeout = wait.Duration(50 * time.Millisecond)
	w.targets = Targets{target}
	w.finish()
	w.flush()
	if left := w.undelivered(); len(left) != 1 || !strings.Contains(left[0].LastError, "no answer within 50ms") {
		t.Errorf("left %+v", left)
	}
}
