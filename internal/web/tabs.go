package web

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"

	"github.com/evalrun/evalrun/internal/service"
	"github.com/evalrun/evalrun/internal/sse"
)

// maxTabs is the most streams that one browser may ask for at once.
const maxTabs = 64

// tabs streams everything that the tabs of a browser follow over one connection: over HTTP/1.1 a
// browser has six for all of its tabs. The query names the streams, each with the revision that its
// tab knows: of=URL&since=N&of=URL&since=N. The name of an event begins with the number of its
// stream. A stream that has ended sends "end", with the error if there is one.
func (p *livePages) tabs(w http.ResponseWriter, r *http.Request) error {
	of, since := r.URL.Query()["of"], r.URL.Query()["since"]
	if len(of) == 0 || len(of) != len(since) || len(of) > maxTabs {
		return &pageError{http.StatusUnprocessableEntity,
			fmt.Sprintf("expected 1 to %d streams, each as of=URL&since=REVISION", maxTabs)}
	}
	ctx, stop := context.WithCancel(r.Context())
	defer stop()
	shared := sse.Answer(w)
	if shared.Comment("the streams of several tabs") != nil {
		return nil
	}
	var all sync.WaitGroup
	panicked := make(chan any, len(of))
	for i, text := range of {
		prefix := strconv.Itoa(i) + " "
		all.Go(func() {
			defer func() { // the caller of this handler gets the panic, and the process goes on
				if broken := recover(); broken != nil {
					panicked <- fmt.Sprintf("%v\n%s", broken, debug.Stack())
					stop()
				}
			}()
			var said struct {
				Error string `json:"error,omitempty"`
			}
			if err := p.followTab(r.WithContext(ctx), text, since[i], p.streams.openOn(shared, prefix)); err != nil {
				_, said.Error = explain(err)
				said.Error = p.withoutFolder(said.Error)
			}
			data, _ := json.Marshal(said) // a string can always be encoded
			if shared.Send(sse.Event{Name: prefix + "end", Data: data}) != nil {
				stop() // the browser is gone
			}
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

// followTab streams the changes of the URL that a tab follows.
func (p *livePages) followTab(r *http.Request, text, since string, open opener) error {
	at, err := url.Parse(text)
	if err != nil {
		return service.ErrNotFound
	}
	q := at.Query()
	q.Set("since", since)
	one := r.Clone(r.Context())
	one.URL = &url.URL{Path: at.Path, RawQuery: q.Encode()}
	one.Header.Del("Last-Event-ID")
	id, isRun := strings.CutPrefix(at.Path, "/runs/")
	id, isLive := strings.CutSuffix(id, "/live")
	switch {
	case at.Path == "/live":
		return p.followRuns(one, open)
	case at.Path == "/inbox/live":
		return p.followInbox(one, open)
	case isRun && isLive && id != "" && !strings.Contains(id, "/"):
		run, _, err := p.find(r.Context(), id)
		if err != nil {
			return err
		}
		return p.followRun(one, run, open)
	}
	return service.ErrNotFound
}
