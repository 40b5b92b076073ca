package sse_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evalrun/evalrun/internal/sse"
)

// A stream on which nothing happens says each 15 seconds that it is there.
func TestAStreamPingsEach15Seconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := httptest.NewRecorder()
		s, err := sse.Answer(w).Open(&sse.Slots{Most: 1}, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 46*time.Second)
		defer cancel()
		if s.Wait(ctx, nil, 0) {
			t.Error("nothing has changed, and it goes on")
		}
		if text := w.Body.String(); text != strings.Repeat(": ping\n\n", 3) {
			t.Errorf("after 46 s it has said %q", text)
		}
	})
}

// Streams on one connection are told apart by the names of their events, and each has a slot until it is
// closed.
func TestStreamsOnOneConnection(t *testing.T) {
	t.Parallel()
	w, slots := httptest.NewRecorder(), &sse.Slots{Most: 2}
	c := sse.Answer(w)
	var open []*sse.Stream
	for _, prefix := range []string{"", "1 "} {
		s, err := c.Open(slots, prefix, nil)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, s)
	}
	if _, err := c.Open(slots, "", nil); !errors.Is(err, sse.ErrTooMany) || slots.Taken() != 2 {
		t.Errorf("a third of two: %v, %d are taken", err, slots.Taken())
	}
	if w.Body.Len() > 0 || w.Header().Get("Content-Type") != "" {
		t.Error("something is sent before there is anything to tell")
	}
	for _, err := range []error{
		open[0].Retry(2 * time.Second),
		open[0].Send(sse.Event{ID: "7", Name: "a", Data: []byte("{}")}, sse.Event{Data: []byte("1")}),
		open[1].Send(sse.Event{Name: "a", Data: []byte("2")}),
		c.Send(sse.Event{Name: "end", Data: []byte("3")}),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	const want = "retry: 2000\n\nid: 7\nevent: a\ndata: {}\n\ndata: 1\n\nevent: 1 a\ndata: 2\n\nevent: end\ndata: 3\n\n"
	if got := w.Body.String(); got != want || w.Header().Get("Content-Type") != "text/event-stream" {
		t.Errorf("%q, want %q", got, want)
	}
	open[0].Close()
	if s, err := c.Open(slots, "", nil); err != nil {
		t.Error("a stream that was closed has kept its slot")
	} else {
		s.Close()
	}
}
