package modelproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/testenv"
)

// An answer may begin before the request has ended: providers refuse what they do not like without
// reading all of it.
func TestAnAnswerThatComesEarly(t *testing.T) {
	server := provider(t, func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		_ = control.EnableFullDuplex()
		_, _ = io.WriteString(w, "data: {}\n\n")
		_ = control.Flush()
		if body, err := io.ReadAll(r.Body); err != nil || string(body) != `{"model":"m"}` {
			t.Errorf("got %s, %v", body, err)
		}
		_, _ = io.WriteString(w, chatStream)
	})
	s := open(t, start(t), Upstream{URL: server.URL, Key: realKey})
	done := make(chan struct{})
	go func() {
		defer close(done)
		r := request(t, s, chatPath, "")
		body, rest := io.Pipe()
		r.Body, r.ContentLength = body, 13
		go func() { _, _ = io.WriteString(rest, `{"model":`) }()
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close()
		if _, err := io.ReadFull(resp.Body, make([]byte, 10)); err != nil {
			t.Error(err)
		}
		_, _ = io.WriteString(rest, `"m"}`)
		rest.Close()
		if got := readAll(t, resp.Body); got != chatStream {
			t.Errorf("got %s", got)
		}
	}()
	testenv.Receive(t, done, "the answer")
	if calls := s.Calls(); len(calls) != 1 || calls[0].Model != "m" || calls[0].InputTokens != 120 {
		t.Errorf("got %+v", calls)
	}
}

// Sessions do not see each other, whatever happens at once.
func TestSessionsAreApart(t *testing.T) {
	server := provider(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if key := r.Header.Get("Authorization"); !strings.Contains(string(body), strings.TrimPrefix(key, "Bearer ")) {
			t.Errorf("%s came with %s", body, key)
		}
		canned("text/event-stream", chatStream, 64)(w, r)
	})
	p := start(t)
	var all sync.WaitGroup
	for i := range 8 {
		key := fmt.Sprintf("key-of-session-%d", i)
		s := open(t, p, Upstream{URL: server.URL, Key: key})
		all.Go(func() {
			for range i + 1 {
				all.Go(func() {
					if got := post(t, s, "/v1/chat/completions", `{"model":"`+key+`","tools":[1]}`); got.body != chatStream {
						t.Errorf("got %+v", got)
					}
				})
			}
		})
		t.Cleanup(func() {
			u, _ := s.Close()
			if u.Main.Calls != i+1 || u.Main.InputTokens != int64(i+1)*120 || u.Main.Models["[redacted:MODEL_KEY]"] != i+1 {
				t.Errorf("session %d: got %+v", i, u.Main)
			}
		})
	}
	all.Wait()
}

// Whatever runs when the proxy is closed ends, and no goroutine is left.
func TestNothingIsLeft(t *testing.T) {
	http.DefaultClient.CloseIdleConnections()
	before := runtime.NumGoroutine()
	begun := make(chan struct{}, 3) // a client has the beginning of its answer
	ended := make(chan struct{}, 3)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "data: {}\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		ended <- struct{}{}
	}))
	p, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, p, Upstream{URL: server.URL, Key: realKey})
	if err := s.ServeUnix(t.TempDir() + "/s"); err != nil {
		t.Fatal(err)
	}
	var answers sync.WaitGroup
	for range 3 {
		answers.Go(func() {
			resp, err := http.DefaultClient.Do(request(t, s, "/v1/chat/completions", `{}`))
			begun <- struct{}{}
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			if _, err := io.ReadAll(resp.Body); err == nil && resp.StatusCode == 200 {
				t.Error("what was cut off looks whole")
			}
		})
	}
	for range 3 {
		<-begun
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		testenv.Receive(t, ended, "the end of a request to the provider")
	}
	if u := s.Usage(); u.Main.Aborted != 3 || u.Main.Calls != 3 || s.Failure() != nil {
		t.Errorf("got %+v, %v", u, s.Failure())
	}
	if _, err := p.Open(Upstream{URL: server.URL}); !errors.Is(err, errClosed) {
		t.Errorf("a closed proxy opens sessions: %v", err)
	}
	if err := s.ServeUnix(t.TempDir() + "/s"); !errors.Is(err, errClosed) {
		t.Errorf("a closed session is served: %v", err)
	}
	server.Close()
	answers.Wait()
	http.DefaultClient.CloseIdleConnections()
	testenv.NoMoreGoroutines(t, before)
}

// A client that neither reads nor writes does not keep a session open.
func TestAStuckClientIsCutOff(t *testing.T) {
	full := make(chan struct{}, 1)
	server := provider(t, func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		_ = control.EnableFullDuplex() // does not wait for the end of the request
		for {
			_ = control.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
			if _, err := w.Write(make([]byte, 1<<16)); err != nil { // all buffers on the way are full
				full <- struct{}{}
				return
			}
		}
	})
	p := start(t)
	for name, sent := range map[string]string{
		"does not read":  "Content-Length: 2\r\n\r\n{}",
		"does not write": "Content-Length: 1000\r\n\r\n{",
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, p, Upstream{URL: server.URL, Key: realKey})
			c, err := net.Dial("tcp", strings.TrimPrefix(s.URL(), "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_, _ = fmt.Fprintf(c, "POST /v1/messages HTTP/1.1\r\nHost: x\r\nX-Api-Key: %s\r\n%s", s.Token(), sent)
			testenv.Receive(t, full, "a full connection")
			done := make(chan struct{})
			go func() { defer close(done); _, _ = s.Close() }()
			testenv.Receive(t, done, "Close")
		})
	}
}

// A piece of a stream reaches the agent before the provider sends the next.
func TestStreamsAreNotDelayed(t *testing.T) {
	next := make(chan struct{})
	server := provider(t, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush() // the header by itself
		for i := range 3 {
			select {
			case <-next:
			case <-r.Context().Done():
				return
			}
			_, _ = fmt.Fprintf(w, "data: {\"n\":%d", i) // not even a whole line
			_ = http.NewResponseController(w).Flush()
		}
	})
	s := open(t, start(t), Upstream{URL: server.URL, Key: realKey})
	done := make(chan struct{})
	go func() {
		defer close(done)
		resp, err := http.DefaultClient.Do(request(t, s, chatPath, `{}`))
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close()
		for i := range 3 {
			next <- struct{}{}
			want := fmt.Sprintf("data: {\"n\":%d", i)
			got := make([]byte, len(want))
			if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != want {
				t.Errorf("got %q, %v", got, err)
			}
		}
	}()
	testenv.Receive(t, done, "the stream")
}

func TestAnAbortOfTheAgentReachesTheProvider(t *testing.T) {
	for _, early := range []bool{true, false} {
		ended := make(chan struct{})
		begun := make(chan struct{})
		server := provider(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // else the end of the connection is not noticed
			if !early {
				canned("text/event-stream", chatStream[:100], 100)(w, r)
			}
			close(begun)
			<-r.Context().Done()
			close(ended)
		})
		s := open(t, start(t), Upstream{URL: server.URL, Key: realKey})
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-begun
			if !s.Busy() {
				t.Error("nothing runs")
			}
			cancel()
		}()
		resp, err := http.DefaultClient.Do(request(t, s, chatPath, `{}`).WithContext(ctx))
		if err == nil {
			_, err = io.ReadAll(resp.Body)
			resp.Body.Close()
		}
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		testenv.Receive(t, ended, "the abort")
		u, _ := s.Close()
		if u.Main.Calls != 1 || u.Main.Aborted != 1 || len(u.Main.Errors) != 0 || s.Failure() != nil || s.Busy() {
			t.Errorf("early %v: got %+v, %v", early, u, s.Failure())
		}
	}
}

func TestUnixSocket(t *testing.T) {
	server := provider(t, canned("text/event-stream", chatStream, 40))
	p := start(t)
	s, other := open(t, p, Upstream{URL: server.URL, Key: realKey}), open(t, p, Upstream{URL: server.URL, Key: realKey})
	path := filepath.Join(t.TempDir(), "model.sock")
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	left.SetUnlinkOnClose(false)
	left.Close()
	if err := s.ServeUnix(path); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v", info, err)
	}
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
	defer client.CloseIdleConnections()
	ask := func(s *Session) (int, string) {
		resp, err := client.Do(request(t, s, chatPath, `{}`))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return resp.StatusCode, readAll(t, resp.Body)
	}
	if status, body := ask(s); status != 200 || body != chatStream {
		t.Errorf("got %d %s", status, body)
	}
	if status, _ := ask(other); status != 401 {
		t.Errorf("another session's token: got %d", status)
	}
	u, err := s.Close()
	if err != nil || u.Main.Calls != 1 {
		t.Errorf("got %+v, %v", u, err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}

	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := other.ServeUnix(file); err == nil {
		t.Error("a file was replaced")
	}
	if err := other.ServeUnix(filepath.Join(t.TempDir(), strings.Repeat("x", 120))); err == nil || !strings.Contains(err.Error(), "104 bytes") {
		t.Errorf("got %v", err)
	}
}
