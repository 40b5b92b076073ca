package web

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/report"
	"github.com/evalrun/evalrun/schemas"
)

// A stream on which nothing happens says each 15 seconds that it is there.
func TestAStreamPingsEach15Seconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &Pages{streams: make(chan struct{}, 1)}
		w := httptest.NewRecorder()
		s, err := p.newStream(w)
		if err != nil {
			t.Fatal(err)
		}
		defer s.close()
		ctx, cancel := context.WithTimeout(t.Context(), 46*time.Second)
		defer cancel()
		if s.wait(httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil), nil, 0) {
			t.Error("nothing has changed, and it goes on")
		}
		if text := w.Body.String(); text != "retry: 2000\n\n"+strings.Repeat(": ping\n\n", 3) {
			t.Errorf("after 46 s it has said %q", text)
		}
	})
}

// A browser that does not read is dropped once it is 1 MB behind; one that reads is told everything.
func TestABrowserThatIsFarBehindIsDropped(t *testing.T) {
	t.Parallel()
	p := &Pages{streams: make(chan struct{}, maxStreams)}
	p.feeds = feeds{p: p, runs: map[string]*feed{}}
	f := &feed{stop: func() {}, ended: make(chan struct{}), listeners: map[*listener]bool{}, newest: &moment{followed: make(chan struct{})}}
	close(f.ended) // nobody reads the run: the test says what changes
	p.feeds.runs["run"] = f
	joined, dropped := make(chan struct{}, 2), make(chan error, 2)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s, err := p.newStream(w)
		if err != nil {
			t.Error(err)
			return
		}
		defer s.close()
		l, leave := p.feeds.join("run", s.drop)
		defer leave()
		_ = s.ping()
		joined <- struct{}{}
		for s.wait(r, l.at.followed, 0) {
			if err := s.sendText(1, "patch", p.feeds.next(l).data); err != nil {
				if r.URL.Path == "/slow" {
					dropped <- err
				}
				return
			}
		}
	}))
	defer server.Close()
	slow, err := net.Dial("tcp", server.Listener.Addr().String()) //nolint:noctx // it is closed below
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = slow.Close() }()
	if _, err := fmt.Fprintf(slow, "GET /slow HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	<-joined
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/quick", nil)
	if err != nil {
		t.Fatal(err)
	}
	quick, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = quick.Body.Close() }()
	<-joined
	text := strings.Repeat("x", 1<<18)
	read := make([]byte, len(text))
	for n := 0; ; n++ {
		p.feeds.add("run", f, int64(n), &patch{Text: map[string]string{"t": text}})
		if _, err := io.ReadFull(quick.Body, read); err != nil {
			t.Fatal("who reads is dropped: ", err)
		}
		select {
		case <-dropped:
			return
		default:
		}
		if n > 1000 { // 256 MB: what the connection takes is much less
			t.Fatal("who does not read is not dropped")
		}
	}
}

// A patch has the rollouts whose status or score has changed since a revision, whichever overviews were
// made in between; everything if that is not known.
func TestAPatchHasWhatHasChangedSinceARevision(t *testing.T) {
	t.Parallel()
	one := func(revision int64, rows ...string) *overview {
		o := &overview{head: schemas.Head{Revision: revision, Statistics: new(eval.Summary)}, base: revision, counts: map[string]int{}, agents: []string{"a"}, evaluations: make([]evaluation, 1)}
		for _, text := range rows {
			status, score, _ := strings.Cut(text, " ")
			r := row{Row: report.Row{Status: status}}
			if v := 0.0; score != "" {
				_, _ = fmt.Sscan(score, &v)
				r.Score = &v
			}
			o.rows = append(o.rows, r)
		}
		return o
	}
	a, b, c := one(10, "failed 0", "failed 0.25", "running", "passed 1"), one(12, "failed 0", "failed 0.5", "running", "passed 1"), one(15, "failed 0", "failed 0.5", "faulted", "passed 1")
	b.follow(a)
	c.follow(b)
	for since, want := range map[int64]string{9: "0 1 2 3 whole", 10: "1 2", 11: "1 2", 12: "2", 14: "2", 15: "", 16: "0 1 2 3 whole", -1: "0 1 2 3 whole"} {
		p := patchOf(since, c)
		var got []string
		for _, set := range p.Set {
			got = append(got, fmt.Sprint(set[0]))
		}
		if p.Whole {
			got = append(got, "whole")
		}
		if got := strings.Join(got, " "); got != want {
			t.Errorf("since %d: %q, want %q", since, got, want)
		}
	}
	if shorter := one(20, "passed 1"); true {
		shorter.follow(c)
		if p := patchOf(15, shorter); !p.Whole {
			t.Error("another run of the same id has changes")
		}
	}
}
