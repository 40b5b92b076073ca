package tasks

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"reflect"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/gateway/mcptask"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/mcp/taskwire"
	"github.com/evalrun/evalrun/internal/store"
)

// task is a task that has not ended, while this process looks after it. Either a client knows it,
// or we wait for it in the client's place.
type task struct {
	s *facade
	// upstream is the client's, nil for a task of an earlier process. key is the server's id under
	// which the index has it.
	upstream *gateway.Upstream
	key      upstreamID
	// ctx ends with the endpoint, and when nobody wants the task any more.
	ctx    context.Context
	cancel context.CancelFunc
	// token is for progress of the client's call.
	token json.RawMessage
	// passInput says that a client which waits can be given a modern server's questions as they
	// are.
	passInput bool
	questions *questions

	done chan struct{} // closed when the task has ended and its end is stored
	gone chan struct{} // closed when no goroutine works on it any more
	due  chan struct{} // has one element when the server is to be asked now

	changing sync.Mutex // one change at a time
	mu       sync.Mutex
	rec      store.MCPTask
	kept     bool          // rec is in the store
	changed  chan struct{} // closed and replaced at every change, and when a question is released
	// upstreamTask is the task at its server. It is nil before the server has made one, and for calls
	// that we run.
	upstreamTask *upstreamTask
}

// errTaskEnded says that nothing has to be kept, because the result is there.
var errTaskEnded = errors.New("the task has ended")

func (s *facade) newTask(c toolCall) *task {
	rec := store.MCPTask{ID: rand.Text(), Access: s.k.access, Server: s.e.Server().Name,
		Tool: c.name, Status: mcptask.Working, TTL: c.ttl, Poll: s.k.o.Poll}
	if c.r.Era == mcp.Legacy {
		rec.Session = c.r.Session.ID()
	}
	t := s.blankTask(rec)
	t.upstream, t.questions.capabilities = c.l, c.capabilities
	t.token = c.r.Meta().Get(mcp.MetaProgressToken)
	return t
}

func (s *facade) blankTask(rec store.MCPTask) *task {
	t := &task{
		s: s, rec: rec, done: make(chan struct{}), gone: make(chan struct{}), due: make(chan struct{}, 1),
		changed: make(chan struct{}),
	}
	t.questions = newQuestions(t)
	t.ctx, t.cancel = context.WithCancel(s.e.Context())
	return t
}

// record returns the task as it is now. changed is closed when that is out of date.
func (t *task) record() (rec store.MCPTask, changed <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.rec, t.changed
}

// keep puts the task into the store, so that the client may be told of it. errTaskEnded says that
// this is not necessary.
func (t *task) keep() error {
	t.changing.Lock()
	defer t.changing.Unlock()
	rec, _ := t.record()
	if rec.Ended() {
		return errTaskEnded
	}
	o := &t.s.k.o
	added, err := o.Store.AddMCPTask(t.s.k.ctx, rec, store.MCPTaskLimits{Total: o.Max, PerSession: o.MaxPerSession})
	if err != nil {
		return mcp.Errorf(mcp.CodeInternal, "the call was not made a task: %v", err)
	}
	t.mu.Lock()
	t.rec, t.kept = added, true
	t.mu.Unlock()
	t.s.k.index.add(t)
	return nil
}

// forget removes a task that nobody was told of.
func (t *task) forget() {
	rec, _ := t.record()
	t.s.k.index.drop(t)
	t.cancel()
	close(t.gone)
	_ = t.s.k.o.Store.RemoveMCPTask(t.s.k.ctx, rec.ID) // else it stays until its time is over, and nobody knows its id
}

// change changes the task in the store, and then tells everybody who waits for it. It does nothing
// for a task that has ended, or if nothing changes.
func (t *task) change(f func(rec *store.MCPTask)) error {
	t.changing.Lock()
	defer t.changing.Unlock()
	return t.changeHeld(f)
}

// changeHeld is change for a caller that holds changing.
func (t *task) changeHeld(f func(rec *store.MCPTask)) error {
	before, _ := t.record()
	if before.Ended() {
		return nil
	}
	rec := before
	f(&rec)
	t.questions.show(&rec)
	k := t.s.k
	session := k.session(rec.Session)
	rec.Told = rec.Ended() && session != nil
	if reflect.DeepEqual(rec, before) {
		return nil
	}
	if t.kept { // does not change while changing is held
		after, known, err := k.o.Store.ChangeMCPTask(k.ctx, rec)
		if err != nil {
			return err
		}
		if rec = after; !known { // its time is over
			rec.Status, rec.Message, rec.Result, rec.Error = mcptask.Cancelled, "its time to live is over", nil, nil
			t.cancel() // the goroutine that follows the task tells its server
		}
	}
	t.mu.Lock()
	t.rec = rec
	t.mu.Unlock()
	t.wake()
	if rec.Ended() {
		close(t.done)
		k.index.drop(t)
	}
	if t.kept && (rec.Status != before.Status || rec.Message != before.Message ||
		string(rec.InputRequests) != string(before.InputRequests)) {
		if session != nil {
			_ = session.Notify(mcp.NoteTaskStatus, view(rec).Legacy()) // a session that has ended does not want to know
		} else if back := k.session(rec.Session); back != nil && rec.Ended() {
			k.catchUp(back) // the client has come back just now
		}
		k.subscriptions.tell(rec)
	}
	return nil
}

// wake wakes everybody who waits for a change.
func (t *task) wake() {
	t.mu.Lock()
	defer t.mu.Unlock()
	close(t.changed)
	t.changed = make(chan struct{})
}

// atServer returns the task at its server, or nil if the server has made none.
func (t *task) atServer() *upstreamTask {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.upstreamTask
}

// attach records the task that the server has made. If another task of ours has its id, both are
// refused, because nobody can tell to which of the calls the result belongs.
func (t *task) attach(u *upstreamTask) error {
	if other := t.s.k.index.claim(t, t.s.upstreamID(u.client, u.handle.ID)); other != nil {
		e := mcp.Errorf(mcp.CodeInternal,
			"MCP server %q has given two calls one task id; whose result is whose cannot be told", t.s.e.Server().Name)
		other.fail(e)
		other.cancel()
		return e
	}
	t.mu.Lock()
	t.upstreamTask = u
	t.mu.Unlock()
	return t.change(func(rec *store.MCPTask) {
		rec.Message = u.handle.Message
		if u.handle.PollMs > 0 {
			rec.Poll = time.Duration(u.handle.PollMs) * time.Millisecond
		}
		rec.Work = u.work()
	})
}

// handOver gives the questions of a modern server to a modern client that still waits for the call,
// and reports whether it did.
func (t *task) handOver(questions json.RawMessage) bool {
	t.changing.Lock()
	defer t.changing.Unlock()
	if !t.passInput || t.kept {
		return false
	}
	return t.changeHeld(func(rec *store.MCPTask) { rec.Status, rec.Result = mcptask.Completed, questions }) == nil
}

// finish ends the task. It shows the end once it is stored, however often that has to be tried
// while the gateway runs.
func (t *task) finish(f func(rec *store.MCPTask)) {
	for t.change(f) != nil {
		again := time.NewTimer(time.Second)
		select {
		case <-again.C:
		case <-t.s.e.Context().Done(): // that of the manager ends only after this
			again.Stop()
			return
		}
	}
}

// stop ends the task as cancelled. The goroutine that follows the task tells its server.
func (t *task) stop(message string) {
	t.finish(func(rec *store.MCPTask) { rec.Status, rec.Message = mcptask.Cancelled, message })
	t.cancel()
}

// fail ends the task as failed, with an error.
func (t *task) fail(e *mcp.Error) {
	t.finish(func(rec *store.MCPTask) { rec.Status, rec.Message, rec.Error = mcptask.Failed, e.Message, e.JSON() })
}

// await waits with a client for the end of a task that the client does not know, as long as tasks
// may live. It tells the client that its call goes on.
func (t *task) await(ctx context.Context, c toolCall) (json.RawMessage, error) {
	tick := time.NewTicker(progressInterval)
	defer tick.Stop()
	limit := t.s.k.o.MaxTTL
	late := time.NewTimer(limit)
	defer late.Stop()
	lastMessage := ""
	for n := 1; ; n++ {
		rec, changed := t.record()
		if t.token != nil && rec.Message != "" && rec.Message != lastMessage && !rec.Ended() {
			lastMessage = rec.Message
			_ = c.r.Notify(mcp.NoteProgress, gateway.ProgressOf(t.token, n, lastMessage)) // a client that has gone ends ctx
		}
		select {
		case <-t.done:
			return t.answer(c)
		case <-changed:
		case <-tick.C:
			if t.token != nil {
				_ = c.r.Notify(mcp.NoteProgress, gateway.ProgressOf(t.token, n, "still running")) // as above
			}
		case <-late.C:
			t.fail(mcp.Errorf(mcp.CodeInternal, "MCP server %q has not ended the call within %v", t.s.e.Server().Name, limit))
			t.cancel() // the goroutine that follows the task tells the server
		case <-ctx.Done():
			t.stop("its client has gone")
			return nil, context.Cause(ctx)
		}
	}
}

// answer turns the end of a task into the answer to the call.
func (t *task) answer(c toolCall) (json.RawMessage, error) {
	rec, _ := t.record()
	return view(rec).Payload(c.r.Era, false)
}

// progressInterval is how often a client that waits is told that its call goes on.
const progressInterval = 5 * time.Second

// view is a task as its client sees it.
func view(rec store.MCPTask) taskwire.Task {
	return taskwire.Task{
		ID: rec.ID, Status: rec.Status, Message: rec.Message, CreatedAt: rec.CreatedAt, UpdatedAt: rec.UpdatedAt,
		TTL: rec.TTL, Poll: rec.Poll, InputRequests: rec.InputRequests, Result: rec.Result, Error: rec.Error,
	}
}

// created is the answer to a call that has become a task. It keeps what the server said beside the
// task itself.
func (t *task) created(era mcp.Era) json.RawMessage {
	rec, _ := t.record()
	var said jsonobj.Object
	if u := t.atServer(); u != nil {
		said, _ = jsonobj.ParseObject(u.reply)
	}
	meta := said.Object("_meta").Delete(mcp.MetaRelatedTask,
		mcptask.MetaForeignTask, mcptask.MetaForeignRelated, mcp.MetaServerInfo)
	var upstream jsonobj.Object
	switch {
	case era == mcp.Legacy && said.Has("task"):
		upstream = said.Object("task")
	case era == mcp.Modern && said.Text("resultType") == "task":
		upstream = said.Delete("_meta")
	}
	return view(rec).Created(era, upstream, meta)
}
