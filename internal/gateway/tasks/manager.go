// Package tasks gives plain clients MCP tasks to wait for, in both protocol eras and whatever their
// server speaks. [Manager] keeps the tasks and the clients' sessions in a store, so that they
// survive the gateway. It is the only part of the gateway that knows the store.
package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/gateway/mcptask"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/store"
)

// Manager keeps the tasks and the legacy sessions of an access, over restarts of the gateway.
type Manager struct {
	o       Options
	access  string // the digest of the token
	now     func() time.Time
	facades map[string]*facade // by the names of the servers

	// ctx ends after everything else.
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	index         *taskIndex
	subscriptions *subscriptions

	mu       sync.Mutex
	sessions map[string]*mcp.Session
	// resumed are connections that go on with the sessions of an earlier process; the id of the task
	// is empty.
	resumed map[upstreamID]*mcp.Client
}

// New makes the manager of tasks for the clients of one access. A nil clock means time.Now.
func New(o Options, now func() time.Time) (*Manager, error) {
	o, err := o.complete()
	if err != nil {
		return nil, err
	}
	if now == nil {
		now = time.Now
	}
	k := &Manager{
		o: o, now: now, facades: map[string]*facade{}, index: newTaskIndex(), subscriptions: newSubscriptions(),
		sessions: map[string]*mcp.Session{}, resumed: map[upstreamID]*mcp.Client{},
	}
	k.ctx, k.cancel = context.WithCancel(context.Background())
	return k, nil
}

// Policy implements gateway.Tasks.
func (k *Manager) Policy(e *gateway.Endpoint) gateway.Policy {
	s := &facade{e: e, k: k}
	k.facades[e.Server().Name] = s
	return s
}

// ServerOptions implements gateway.Tasks.
func (k *Manager) ServerOptions(endpoint string, open gateway.Opener) mcp.ServerOptions {
	// The gateway has checked the hosts.
	return mcp.ServerOptions{
		Hosts: []string{"*"}, Restore: k.restore(endpoint, open), IdleTimeout: k.o.SessionIdle, Now: k.now,
	}
}

// Start goes on with the tasks of an earlier process, and begins to clean up.
func (k *Manager) Start(access string) error {
	k.access = access
	if err := k.resumeTasks(); err != nil {
		return err
	}
	k.running.Go(func() {
		tick := time.NewTicker(k.o.Cleanup)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				k.cleanUp()
			case <-k.ctx.Done():
				return
			}
		}
	})
	return nil
}

// Leave marks the sessions in which servers work on tasks, so that they do not end with the
// connections. Another process goes on with them.
func (k *Manager) Leave() {
	for _, t := range k.index.all(func(t *task) bool { return t.upstream != nil }) {
		t.upstream.Keep()
	}
}

// Close ends the rest when the endpoints have been closed.
func (k *Manager) Close() {
	k.cancel()
	k.running.Wait()
	used := map[*mcp.Client]bool{}
	for _, t := range k.index.all(func(*task) bool { return true }) {
		if u := t.atServer(); u != nil {
			used[u.client] = true
		}
	}
	k.mu.Lock()
	resumed := k.resumed
	k.mu.Unlock()
	for _, c := range resumed {
		if used[c] {
			_ = c.Detach() // its user is gone
		} else {
			_ = c.Close() // as above
		}
	}
}

// cleanUp ends what has lived for too long.
func (k *Manager) cleanUp() {
	over := k.index.all(func(t *task) bool {
		rec, _ := t.record()
		return !k.now().Before(rec.ExpiresAt())
	})
	var sessions []string
	k.mu.Lock()
	for id := range k.sessions {
		sessions = append(sessions, id)
	}
	k.mu.Unlock()
	for _, t := range over {
		t.stop("its time to live is over")
	}
	idle, err := k.o.Store.ExpireMCP(k.ctx, k.access, sessions, k.o.SessionIdle)
	if err != nil {
		return // tried again the next time
	}
	for _, id := range idle {
		k.endTasks(id)
	}
}

func (s *facade) upstreamID(c *mcp.Client, id string) upstreamID {
	key := upstreamID{server: s.e.Server().Name, id: id}
	if key.session = c.State().SessionID; s.e.Server().Target.Start != nil || key.session == "" && c.Era() == mcp.Legacy {
		key.client = c
	}
	return key
}

// statusNotified makes the server of a task be polled now, because it has said that something has
// happened. Its notification is not passed on, since it has its own ids.
func (k *Manager) statusNotified(s *facade, c *mcp.Client, params json.RawMessage) {
	if t := k.byUpstreamID(s, c, params); t != nil {
		t.pollNow()
	}
}

func (k *Manager) byUpstreamID(s *facade, c *mcp.Client, doc json.RawMessage) *task {
	var named struct {
		TaskID string `json:"taskId"`
	}
	if json.Unmarshal(doc, &named) != nil || c == nil {
		return nil
	}
	return k.index.byUpstreamID(s.upstreamID(c, named.TaskID))
}

// find finds a task of a session, which is empty for modern clients. The task is nil if it has
// ended.
func (k *Manager) find(ctx context.Context, session, id string) (*task, store.MCPTask, error) {
	t := k.index.byID(id)
	if t != nil {
		if rec, _ := t.record(); rec.Session == session && k.now().Before(rec.ExpiresAt()) {
			return t, rec, nil
		}
	}
	rec, err := k.o.Store.MCPTask(ctx, k.access, session, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, rec, mcp.Errorf(mcp.CodeInvalidParams, "Failed to retrieve task: Task not found")
	}
	return nil, rec, err
}

// resumeTasks goes on with the tasks of an earlier process, as far as their servers do.
func (k *Manager) resumeTasks() error {
	open, err := k.o.Store.OpenMCPTasks(k.ctx, k.access)
	if err != nil {
		return err
	}
	for _, rec := range open {
		reason := ""
		var work taskWork
		s := k.facades[rec.Server]
		switch {
		case rec.Work == nil:
			reason = "the gateway was started again while the call was running; whether it has had an effect is not known"
		case s == nil:
			reason = fmt.Sprintf("the gateway was started again without the MCP server %q", rec.Server)
		case s.e.Server().ChildProcess:
			reason = fmt.Sprintf("the gateway was started again, and the process of the MCP server %q ended with it", rec.Server)
		case json.Unmarshal(rec.Work, &work) != nil || work.Task == nil:
			reason = "what the gateway knew of the task cannot be read"
		}
		if reason == "" {
			if err := s.resume(rec, work); err == nil {
				continue
			}
			reason = fmt.Sprintf("the session with the MCP server %q cannot be gone on with", rec.Server)
		}
		rec.Status, rec.Message, rec.InputRequests, rec.Error =
			mcptask.Failed, reason, nil, mcp.Errorf(mcp.CodeInternal, "%s", reason).JSON()
		if _, _, err := k.o.Store.ChangeMCPTask(k.ctx, rec); err != nil {
			return err
		}
	}
	return nil
}

// resume goes on with a task that its server still works on, or has ended meanwhile.
func (s *facade) resume(rec store.MCPTask, work taskWork) error {
	t := s.blankTask(rec)
	t.kept = true
	if err := json.Unmarshal(work.Capabilities, &rawObjectTo{&t.questions.capabilities}); err != nil {
		return err
	}
	client, err := s.connection(work.Task.Session)
	if err != nil {
		return err
	}
	t.upstreamTask = s.upstreamTask(client, work.Task, nil, t.questions.capabilities)
	if s.k.index.claim(t, s.upstreamID(client, work.Task.ID)) != nil {
		return errors.New("two tasks have one id") // no client was told of the second
	}
	s.k.index.add(t)
	s.track(t, func() { t.conclude(nil, nil) })
	return nil
}

// connection goes on with a session of an earlier process.
func (s *facade) connection(session mcp.SessionState) (*mcp.Client, error) {
	key := upstreamID{server: s.e.Server().Name, session: session.SessionID}
	s.k.mu.Lock()
	defer s.k.mu.Unlock()
	if c := s.k.resumed[key]; c != nil {
		return c, nil
	}
	// What the server says without being asked is not heard: another process has the stream for that,
	// or will.
	c, err := mcp.Connect(s.k.ctx, s.e.Server().Target, mcp.ClientOptions{Session: &session, NoStream: true})
	if err == nil {
		s.k.resumed[key] = c
	}
	return c, err
}

// Running is how many tasks of the manager have not ended.
func (k *Manager) Running() int {
	return k.index.count()
}
