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

// maxTold is of how many tasks the client of a session is told without asking.
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
	// told are the tasks that the client is told of, by their ids, with what it was last told.
	told map[string]string
	// listeners is how many streams are open on which the client can be told; stop ends telling,
	// and is nil if nobody does.
	listeners int
	ctx       context.Context
	stop      context.CancelFunc
	telling   sync.WaitGroup
}

// listener is a request that opens a stream, on which the client can be told things until leave is
// called.
type listener struct{ leave func() }

type listenerKey struct{}

// listen notes that the client can be told things, until the returned function is called.
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

// end waits until the client is told nothing any more.
func (one *session) end() {
	one.mu.Lock()
	one.told = nil
	if one.stop != nil {
		one.stop()
	}
	one.mu.Unlock()
	one.telling.Wait()
}

// watch has the client told of a task.
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

// tell tells the client how a task is, whenever that changes, as long as it listens. The caller
// holds mu.
func (one *session) tell(id string) {
	ctx := one.ctx
	one.telling.Go(func() {
		q := &request{Request: &mcp.Request{Session: one.wire, Era: mcp.Legacy}, caller: one.caller, agent: one.agent.Load(), session: one}
		ended := one.tasks.follow(ctx, q, id, func(t taskwire.Task) {
			if one.note(id, t) {
				_ = one.wire.Notify(mcp.NoteTaskStatus, t.Legacy()) // one that has ended does not want to know
			}
		})
		if ended {
			one.mu.Lock()
			delete(one.told, id)
			one.mu.Unlock()
		}
	})
}

// note notes what the client is told of a task, and reports whether that is new. That it works, as
// every task does at first, is not.
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
