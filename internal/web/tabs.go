package web

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/service"
)

// maxTabs is how many streams one browser may ask for at once.
const maxTabs = 64

// tabs streams what the tabs of a browser follow, all of it over one connection: over HTTP/1.1 a browser
// has six for all of its tabs. The query names the streams, each with the revision that is known of it:
// of=URL&since=N&of=URL&since=N. The name of an event begins with the number of its stream. One that has
// ended tells "end", with what is wrong if something is.
func (p *Pages) tabs(w http.ResponseWriter, r *http.Request) error {
	of, since := r.URL.Query()["of"], r.URL.Query()["since"]
	if len(of) == 0 || len(of) != len(since) || len(of) > maxTabs {
		return &pageError{http.StatusUnprocessableEntity, fmt.Sprintf("expected 1 to %d streams, each as of=URL&since=REVISION", maxTabs)}
	}
	ctx, stop := context.WithCancel(r.Context())
	defer stop()
	w.Header().Set("Content-Type", "text/event-stream")
	shared := &sharedStream{w: w, control: http.NewResponseController(w), stop: stop}
	if shared.write([]byte(": the streams of several tabs\n\n")) != nil {
		return nil
	}
	var all sync.WaitGroup
	panicked := make(chan any, len(of))
	for i, text := range of {
		f, request := p.streamOf(r.WithContext(ctx), text, since[i])
		all.Go(func() {
			defer func() { // whoever has called this handler knows what to do, and the process goes on
				if broken := recover(); broken != nil {
					panicked <- fmt.Sprintf("%v\n%s", broken, debug.Stack())
					stop()
				}
			}()
			one := &tabStream{shared: shared, number: i, header: http.Header{}}
			var said struct {
				Error string `json:"error,omitempty"`
			}
			if err := f(one, request); err != nil {
				_, said.Error = explain(err)
				said.Error = p.withoutFolder(said.Error)
			}
			data, _ := json.Marshal(said)                                              // a text
			_ = shared.write(fmt.Appendf(nil, "event: %d end\ndata: %s\n\n", i, data)) // a browser that is gone is told nothing
		})
	}
	all.Wait()
	select {
	case broken := <-panicked:
		panic(broken)
	default:
		return nil
	}
}

// streamOf is what answers a stream by its URL, with the request for it.
func (p *Pages) streamOf(r *http.Request, text, since string) (f func(http.ResponseWriter, *http.Request) error, one *http.Request) {
	none := func(http.ResponseWriter, *http.Request) error { return service.ErrNotFound }
	at, err := url.Parse(text)
	if err != nil {
		return none, r
	}
	q := at.Query()
	q.Set("since", since)
	at.RawQuery = q.Encode()
	one = r.Clone(r.Context())
	one.URL = &url.URL{Path: at.Path, RawQuery: at.RawQuery}
	one.Header.Del("Last-Event-ID")
	run, isRun := strings.CutPrefix(at.Path, "/runs/")
	run, isRun2 := strings.CutSuffix(run, "/live")
	switch {
	case at.Path == "/live":
		return p.runsLive, one
	case at.Path == "/inbox/live":
		return p.inboxLive, one
	case isRun && isRun2 && run != "" && !strings.Contains(run, "/"):
		one.SetPathValue("run", run)
		return p.live, one
	}
	return none, r
}

// sharedStream is the connection over which several streams are told.
type sharedStream struct {
	mu      sync.Mutex
	w       http.ResponseWriter
	control *http.ResponseController
	// stop ends all of them.
	stop context.CancelFunc
}

// write sends a piece, for which the browser has a minute.
func (s *sharedStream) write(data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.control.SetWriteDeadline(time.Now().Add(time.Minute)) // a writer without deadlines is a test's
	_, err := s.w.Write(data)
	if err == nil {
		err = s.control.Flush()
	}
	if err != nil {
		s.stop()
	}
	return err
}

// tabStream is one of the streams of a connection, as the handler of the stream sees it.
type tabStream struct {
	shared *sharedStream
	number int
	header http.Header
	buffer bytes.Buffer
}

// Header is nobody's: the connection has its own.
func (t *tabStream) Header() http.Header { return t.header }

// WriteHeader does nothing, as above.
func (*tabStream) WriteHeader(int) {}

func (t *tabStream) Write(data []byte) (int, error) { return t.buffer.Write(data) }

// FlushError sends what was written, whole events of it, with the number of the stream.
func (t *tabStream) FlushError() error {
	var out bytes.Buffer
	for line := range bytes.Lines(t.buffer.Bytes()) {
		if name, ok := bytes.CutPrefix(line, []byte("event: ")); ok {
			fmt.Fprintf(&out, "event: %d %s", t.number, name)
		} else if !bytes.HasPrefix(line, []byte("retry: ")) {
			out.Write(line)
		}
	}
	t.buffer.Reset()
	return t.shared.write(out.Bytes())
}

// SetWriteDeadline ends all streams of the browser if this one is to end: it reads too slowly.
func (t *tabStream) SetWriteDeadline(at time.Time) error {
	if at.IsZero() || at.After(time.Now()) {
		return nil // the connection has its own
	}
	t.shared.stop()
	return t.shared.control.SetWriteDeadline(at)
}
