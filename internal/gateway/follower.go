package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
)

const (
	// ackTimeout is how long a server may take to acknowledge a subscription.
	ackTimeout = 5 * time.Second
	// A subscription that was cut is begun anew after RelistenFirst. The delay is doubled each
	// time, up to RelistenLast.
	RelistenFirst, RelistenLast = time.Second, 30 * time.Second
)

// follower tells a legacy session of the changes of a modern server. It has a subscription of its
// own.
type follower struct {
	session *mcp.Session    // nil for modern clients, which need no follower
	ctx     context.Context // ends with the endpoint
	// notified is called with the notifications of the server.
	notified func(method string, params json.RawMessage)

	mu        sync.Mutex
	resources []string // those that the client has asked for
	end       context.CancelFunc
	ended     chan struct{}
}

// note records whether the client wants to be told of a resource.
func (f *follower) note(uri string, wants bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.resources = slices.DeleteFunc(f.resources, func(other string) bool { return other == uri })
	if wants {
		f.resources = append(f.resources, uri)
	}
}

// uris are the resources that the client has asked for.
func (f *follower) uris() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.resources)
}

// follow begins to listen at a modern server, or to listen to something else. When it returns the
// server has acknowledged the subscription, or supports none. The caller holds connecting.
func (f *follower) follow(ctx context.Context, c *mcp.Client) {
	if f.session == nil || c.Era() != mcp.Modern {
		return
	}
	wants := f.wants(c)
	life, end := context.WithCancel(f.ctx)
	ended, acknowledged := make(chan struct{}), make(chan struct{})
	go func() { // unfollow waits for it
		defer close(ended)
		if len(wants) > 0 {
			f.listen(life, c, wants, sync.OnceFunc(func() { close(acknowledged) }))
		}
	}()
	late := time.NewTimer(ackTimeout)
	defer late.Stop()
	select {
	case <-acknowledged:
	case <-ended:
	case <-late.C:
	case <-ctx.Done():
	}
	f.unfollow() // only now, so that no change is missed
	f.mu.Lock()
	f.end, f.ended = end, ended
	f.mu.Unlock()
}

// wants returns the notifications that a legacy client gets without asking, and those that it has
// asked for.
func (f *follower) wants(c *mcp.Client) (wants jsonobj.Object) {
	capabilities := ServerCapabilities(c)
	for _, kind := range []string{"tools", "prompts", "resources"} {
		if string(capabilities.Object(kind).Get("listChanged")) == "true" {
			wants = wants.Set(kind+"ListChanged", json.RawMessage("true"))
		}
	}
	if resources := f.uris(); len(resources) > 0 {
		uris, _ := json.Marshal(resources) // strings always marshal
		wants = wants.Set("resourceSubscriptions", uris)
	}
	return wants
}

// listen listens until the context ends or the server refuses.
func (f *follower) listen(ctx context.Context, c *mcp.Client, wants jsonobj.Object, acknowledged func()) {
	call := mcp.Call{Method: mcp.MethodListen, Params: jsonobj.Object{{Key: "notifications", Value: wants.JSON()}}.JSON()}
	for delay := RelistenFirst; ; delay = min(2*delay, RelistenLast) {
		call.Notified = func(method string, params json.RawMessage) {
			if method == mcp.NoteAcknowledged {
				acknowledged()
				delay = RelistenFirst
				return
			}
			f.notified(method, mcp.WithoutMeta(params, mcp.MetaSubscriptionID))
		}
		_, err := c.Call(ctx, call)
		acknowledged() // nobody need wait any longer
		var said *mcp.Error
		if errors.As(err, &said) {
			return
		}
		pause := time.NewTimer(delay)
		select {
		case <-pause.C:
		case <-c.Done():
			pause.Stop()
			return // the next connection is followed anew
		case <-ctx.Done():
			pause.Stop()
			return
		}
	}
}

// unfollow ends the subscription and waits for its end.
func (f *follower) unfollow() {
	f.mu.Lock()
	end, ended := f.end, f.ended
	f.end, f.ended = nil, nil
	f.mu.Unlock()
	if end != nil {
		end()
		<-ended
	}
}
