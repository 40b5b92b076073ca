package mcpserver

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/evalrun/evalrun/internal/access"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/mcp/taskwire"
	"github.com/evalrun/evalrun/internal/store"
)

// maxTold is how many tasks the client of a session is told of without asking.
const maxTold = 1000

// session is a legacy session. While its client listens, it is told of its tasks.
type session struct {
	tasks        *tasks
	wire         *mcp.Session
	caller       access.Identity
	capabilities jsonobj.Object
	// agent is request.agent of the last request.
	agent atomic.Bool

	mu sync.Mutex
	// told are the tasks that the client is told of, by their ids, with the state that it was told
	// last.
	told map[string]string
	// listeners is the number of open streams to the client; stop ends the notifications, and is nil
	// if there are none.
	listeners int
	ctx       context.Context
	stop      context.CancelFunc
	telling   sync.WaitGroup
}

// listener is a request that opens a stream, on which the client can get notifications until leave
// is called.
type listener struct{ leave func() }

type listenerKey struct{}

// listen records that the client can get notifications, until the returned function is called.
func (one *session) listen() (leave func()) {
	one.mu.Lock()
	defer one.mu.Unlock()
	if one.listeners++; one.listeners == 1 {
		one.ctx, one.stop = context.WithCancel(context.Background())
		for id := range one.told {
			one.tell(id)
		}
	}
	return func() {
		one.mu.Lock()
		defer one.mu.Unlock()
		if one.listeners--; one.listeners == 0 {
			one.stop()
		}
	}
}

// end waits until no notifications are sent any more.
func (one *session) end() {
	one.mu.Lock()
	one.told = nil
	if one.stop != nil {
		one.stop()
	}
	one.mu.Unlock()
	one.telling.Wait()
}

// watch begins to tell the client of a task.
func (one *session) watch(id string) {
	one.mu.Lock()
	defer one.mu.Unlock()
	if _, known := one.told[id]; known || one.told == nil || len(one.told) >= maxTold {
		return
	}
	one.told[id] = ""
	if one.listeners > 0 {
		one.tell(id)
	}
}

// tell tells the client the state of a task at each change, as long as it listens. The caller holds
// mu.
func (one *session) tell(id string) {
	ctx := one.ctx
	one.telling.Go(func() {
		q := &request{Request: &mcp.Request{Session: one.wire, Era: mcp.Legacy}, caller: one.caller, agent: one.agent.Load(),
			session: one}
		ended := one.tasks.follow(ctx, q, id, func(t taskwire.Task) {
			if one.note(id, t) {
				_ = one.wire.Notify(mcp.NoteTaskStatus, t.Legacy()) // a client that has gone needs no notification
			}
		})
		if ended {
			one.mu.Lock()
			delete(one.told, id)
			one.mu.Unlock()
		}
	})
}

// note records what the client is told of a task, and reports whether that is new. The state in
// which every task begins, working, is not.
func (one *session) note(id string, t taskwire.Task) bool {
	one.mu.Lock()
	defer one.mu.Unlock()
	now := t.Status + " " + t.Message
	before, known := one.told[id]
	if !known || before == now {
		return false
	}
	one.told[id] = now
	return before != "" || t.Status != string(store.JobWorking)
}
