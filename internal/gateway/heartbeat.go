package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
)

// heartbeat is the key of a context value: how often the client of a call is told that the call
// goes on. Some clients give up a silent call after a minute.
type heartbeat struct{}

// WithHeartbeat returns a context in which a client is told at this interval that its call goes on.
func WithHeartbeat(ctx context.Context, every time.Duration) context.Context {
	return context.WithValue(ctx, heartbeat{}, every)
}

// beat tells the client of a call, if it has asked for progress, that the call goes on. It stops
// when the returned function is called or the server reports progress of its own. Our progress is
// next to nothing, since progress must not go back.
func beat(r *mcp.Request, f *InFlightCall, call *mcp.Call, every time.Duration) (stop func()) {
	token := r.Meta().Get(mcp.MetaProgressToken)
	if token == nil {
		return func() {}
	}
	over, reported, notified := make(chan struct{}), make(chan struct{}), call.Notified
	var once sync.Once
	call.Notified = func(method string, params json.RawMessage) {
		if method == mcp.NoteProgress {
			once.Do(func() { close(reported) })
		}
		notified(method, params)
	}
	f.Notified = call.Notified
	var beating sync.WaitGroup
	beating.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for n := 1; ; n++ {
			select {
			case <-tick.C:
				note := jsonobj.Object{
					{Key: "progressToken", Value: token}, {Key: "progress", Value: fmt.Appendf(nil, "%.9f", float64(n)*1e-9)},
					{Key: "message", Value: jsonobj.Quote("still running")},
				}
				_ = r.Notify(mcp.NoteProgress, note.JSON()) // a client that has gone ends the call
			case <-reported:
				return
			case <-over:
				return
			}
		}
	})
	return func() { close(over); beating.Wait() }
}

func ProgressOf(token json.RawMessage, n int, message string) json.RawMessage {
	return jsonobj.Object{
		{Key: "progressToken", Value: token}, {Key: "progress", Value: strconv.AppendInt(nil, int64(n), 10)},
		{Key: "message", Value: jsonobj.Quote(message)},
	}.JSON()
}
