package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// MCPTasks keeps the tasks that an MCP gateway has given its clients, and the sessions of these. A task belongs to whoever bears an access token,
// and within it to the legacy session in which it was made, or to none.
type MCPTasks interface {
	// AddMCPTask records a task before its client is told of it: ID, Access, Session, Server, Tool, TTL, Poll, Work and the status count. It
	// returns the task with its times. Tasks whose time is over make room first; ErrTooManyTasks says that there are too many all the same.
	AddMCPTask(ctx context.Context, t MCPTask, limits MCPTaskLimits) (MCPTask, error)
	// ChangeMCPTask writes what changes in a task: status, message, poll interval, work, input requests, result, error and whether its end was
	// told. changed is false, and nothing is written, if the task has ended before or is not there any more. An end is durable when this returns.
	ChangeMCPTask(ctx context.Context, t MCPTask) (after MCPTask, changed bool, err error)
	// RemoveMCPTask forgets a task.
	RemoveMCPTask(ctx context.Context, id string) error
	// MCPTask returns a task of an access and session; ErrNotFound if it is not there or its time is over.
	MCPTask(ctx context.Context, access, session, id string) (MCPTask, error)
	// MCPTasks returns up to limit tasks of an access and session after one of them, by Seq, the oldest first. What may be large is left out,
	// Work, InputRequests, Result and Error, and Told, which lies behind it.
	MCPTasks(ctx context.Context, access, session string, after int64, limit int) ([]MCPTask, error)
	// OpenMCPTasks returns the tasks of an access that have not ended.
	OpenMCPTasks(ctx context.Context, access string) ([]MCPTask, error)
	// TellMCPTasks returns the tasks of a session whose end has not been told, as MCPTasks does, and takes it for told.
	TellMCPTasks(ctx context.Context, access, session string) ([]MCPTask, error)

	// PutMCPSession records a session; MCPSession returns it, or ErrNotFound; EndMCPSession forgets it.
	PutMCPSession(ctx context.Context, s MCPSession) error
	MCPSession(ctx context.Context, access, endpoint, id string) (MCPSession, error)
	EndMCPSession(ctx context.Context, access, id string) error
	// ExpireMCP forgets the tasks whose time is over and the sessions of an access that were not used for a time, but for those that are in
	// use, which count as used now. It returns the ids of the sessions that it has forgotten.
	ExpireMCP(ctx context.Context, access string, inUse []string, idle time.Duration) (sessions []string, err error)
}

// ErrTooManyTasks means that an access or a session has as many tasks as it may.
var ErrTooManyTasks = errors.New("there are too many MCP tasks")

// MCPTaskLimits bound the tasks of an access, and of each of its sessions; 0 is no limit. What belongs to no session counts for the access only, and
// what belongs to a session that has ended does not count: nobody can ask for it.
type MCPTaskLimits struct{ Total, PerSession int }

// MCPTask is a task that an MCP gateway has given a client.
type MCPTask struct {
	// ID is the gateway's own. Access is the digest of the access token, Session the legacy session or empty.
	ID, Access, Session string
	// Server and Tool are what was called.
	Server, Tool string
	// Status is one of the protocol's: working, input_required, completed, failed, cancelled. Message is what is said of it.
	Status, Message string
	// CreatedAt and UpdatedAt are times of the store. The task is forgotten TTL after its creation. Poll is how often clients should ask.
	CreatedAt, UpdatedAt time.Time
	TTL, Poll            time.Duration
	// Work is what a later gateway needs to go on with the task; nil if the gateway itself runs it, so that it ends with it.
	Work json.RawMessage
	// InputRequests is what the task wants to know, as an object; nil for nothing. Result and Error are its payload, raw.
	InputRequests, Result, Error json.RawMessage
	// Told says that the client was told of the end without having asked.
	Told bool
	// Seq grows with each task.
	Seq int64
}

// Ended reports whether the status is one that a task ends with.
func (t *MCPTask) Ended() bool {
	return t.Status == "completed" || t.Status == "failed" || t.Status == "cancelled"
}

// ExpiresAt is when the task is forgotten.
func (t *MCPTask) ExpiresAt() time.Time { return t.CreatedAt.Add(t.TTL) }

// MCPSession is a legacy session of a client of an MCP gateway.
type MCPSession struct {
	// ID is that of the protocol. Access is the digest of the access token, Endpoint the name of the endpoint.
	ID, Access, Endpoint string
	// Version is the protocol's that was agreed on.
	Version string
	// Capabilities and Info are the client's own words; either may be nil.
	Capabilities, Info json.RawMessage
}

const (
	mcpTaskOpen    = "status IN ('working', 'input_required')"
	mcpTaskHead    = "id, task_id, access, session, server, tool, status, message, created_at, updated_at, expires_at, poll, "
	mcpTaskColumns = mcpTaskHead + "work, input_requests, result, error, told"
	mcpTaskBrief   = mcpTaskHead + "NULL, NULL, NULL, NULL, 0" // a column behind a large one costs as much to read as that
)

func scanMCPTask(r scanner) (t MCPTask, err error) {
	var created, updated, expires, poll int64
	err = r.Scan(&t.Seq, &t.ID, &t.Access, &t.Session, &t.Server, &t.Tool, &t.Status, &t.Message, &created, &updated, &expires, &poll,
		(*[]byte)(&t.Work), (*[]byte)(&t.InputRequests), (*[]byte)(&t.Result), (*[]byte)(&t.Error), &t.Told)
	t.CreatedAt, t.UpdatedAt = time.UnixMicro(created).UTC(), time.UnixMicro(updated).UTC()
	t.TTL, t.Poll = time.Duration(expires-created)*time.Microsecond, time.Duration(poll)*time.Microsecond
	return t, err
}

// AddMCPTask implements MCPTasks.
func (s *SQLite) AddMCPTask(ctx context.Context, task MCPTask, limits MCPTaskLimits) (MCPTask, error) {
	err := s.writeOp(ctx, func(t *tx) error {
		if err := t.exec("DELETE FROM mcp_tasks WHERE expires_at <= ?", t.now); err != nil {
			return err
		}
		for _, l := range []struct {
			limit int
			of    string
			query string
			args  []any
		}{
			{limits.Total, "the gateway", `SELECT coalesce(sum(n), 0) FROM (SELECT session, count(*) AS n FROM mcp_tasks WHERE access = ? GROUP BY session)
				WHERE session IN ('', ?) OR EXISTS (SELECT 1 FROM mcp_sessions WHERE session_id = session)`, []any{task.Access, task.Session}},
			{limits.PerSession, "the session", "SELECT count(*) FROM mcp_tasks WHERE access = ? AND session = ? AND session <> ''", []any{task.Access, task.Session}},
		} {
			var n int
			if err := t.row([]any{&n}, l.query, l.args...); err != nil {
				return err
			}
			if l.limit > 0 && n >= l.limit {
				return fmt.Errorf("%w: %s has %d, which is the limit", ErrTooManyTasks, l.of, n)
			}
		}
		task.CreatedAt = time.UnixMicro(t.now).UTC()
		task.UpdatedAt = task.CreatedAt
		return t.row([]any{&task.Seq}, `INSERT INTO mcp_tasks (task_id, access, session, server, tool, status, message, created_at, updated_at, expires_at, poll,
			work, input_requests, result, error, told) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING id`,
			task.ID, task.Access, task.Session, task.Server, task.Tool, task.Status, task.Message, t.now, t.now, t.after(task.TTL), task.Poll.Microseconds(),
			raw(task.Work), raw(task.InputRequests), raw(task.Result), raw(task.Error), task.Told)
	})
	if err != nil {
		return MCPTask{}, err
	}
	return task, nil
}

// ChangeMCPTask implements MCPTasks.
func (s *SQLite) ChangeMCPTask(ctx context.Context, task MCPTask) (after MCPTask, changed bool, err error) {
	run := func(t *tx) error {
		n, err := t.change(`UPDATE mcp_tasks SET status = ?, message = ?, poll = ?, work = ?, input_requests = ?, result = ?, error = ?, told = ?, updated_at = ?
			WHERE task_id = ? AND `+mcpTaskOpen, task.Status, task.Message, task.Poll.Microseconds(), raw(task.Work), raw(task.InputRequests),
			raw(task.Result), raw(task.Error), task.Told, t.now, task.ID)
		task.UpdatedAt = time.UnixMicro(t.now).UTC()
		changed = n > 0
		return err
	}
	if task.Ended() {
		err = s.writeOp(ctx, run)
	} else {
		err = s.writeRelaxed(ctx, run) // the server says it again
	}
	return task, changed && err == nil, err
}

// RemoveMCPTask implements MCPTasks.
func (s *SQLite) RemoveMCPTask(ctx context.Context, id string) error {
	return s.writeOp(ctx, func(t *tx) error { return t.exec("DELETE FROM mcp_tasks WHERE task_id = ?", id) })
}

// MCPTask implements MCPTasks.
func (s *SQLite) MCPTask(ctx context.Context, access, session, id string) (MCPTask, error) {
	t, err := scanMCPTask(s.read.QueryRowContext(ctx, "SELECT "+mcpTaskColumns+" FROM mcp_tasks WHERE task_id = ? AND access = ? AND session = ? AND expires_at > ?",
		id, access, session, s.now().UnixMicro()))
	if errors.Is(err, sql.ErrNoRows) {
		return MCPTask{}, fmt.Errorf("MCP task: %w", ErrNotFound)
	}
	return t, s.describe(err)
}

// MCPTasks implements MCPTasks.
func (s *SQLite) MCPTasks(ctx context.Context, access, session string, after int64, limit int) ([]MCPTask, error) {
	return s.mcpTasks(ctx, mcpTaskBrief, "access = ? AND session = ? AND id > ? AND expires_at > ? ORDER BY id LIMIT ?", access, session, after, s.now().UnixMicro(), limit)
}

// OpenMCPTasks implements MCPTasks.
func (s *SQLite) OpenMCPTasks(ctx context.Context, access string) ([]MCPTask, error) {
	return s.mcpTasks(ctx, mcpTaskColumns, mcpTaskOpen+" AND access = ? ORDER BY id", access)
}

func (s *SQLite) mcpTasks(ctx context.Context, columns, where string, args ...any) (out []MCPTask, err error) {
	defer func() { err = s.describe(err) }()
	rows, err := s.read.QueryContext(ctx, "SELECT "+columns+" FROM mcp_tasks WHERE "+where, args...)
	if err != nil {
		return nil, err
	}
	err = each(rows, func(r scanner) error {
		t, err := scanMCPTask(r)
		out = append(out, t)
		return err
	})
	return out, err
}

// TellMCPTasks implements MCPTasks.
func (s *SQLite) TellMCPTasks(ctx context.Context, access, session string) (out []MCPTask, err error) {
	err = s.writeOp(ctx, func(t *tx) error {
		const where = " WHERE access = ? AND session = ? AND told = 0 AND NOT "
		out = nil
		err := t.rows(func(r scanner) error {
			task, err := scanMCPTask(r)
			task.Told = true
			out = append(out, task)
			return err
		}, "SELECT "+mcpTaskBrief+" FROM mcp_tasks"+where+mcpTaskOpen+" ORDER BY id", access, session)
		if err != nil || len(out) == 0 {
			return err
		}
		return t.exec("UPDATE mcp_tasks SET told = 1"+where+mcpTaskOpen, access, session)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// PutMCPSession implements MCPTasks.
func (s *SQLite) PutMCPSession(ctx context.Context, m MCPSession) error {
	return s.writeOp(ctx, func(t *tx) error {
		return t.exec("INSERT OR REPLACE INTO mcp_sessions (session_id, access, endpoint, version, capabilities, info, created_at, used_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
			m.ID, m.Access, m.Endpoint, m.Version, raw(m.Capabilities), raw(m.Info), t.now, t.now)
	})
}

// MCPSession implements MCPTasks.
func (s *SQLite) MCPSession(ctx context.Context, access, endpoint, id string) (MCPSession, error) {
	m := MCPSession{ID: id, Access: access, Endpoint: endpoint}
	err := s.read.QueryRowContext(ctx, "SELECT version, capabilities, info FROM mcp_sessions WHERE session_id = ? AND access = ? AND endpoint = ?", id, access, endpoint).
		Scan(&m.Version, (*[]byte)(&m.Capabilities), (*[]byte)(&m.Info))
	if errors.Is(err, sql.ErrNoRows) {
		return MCPSession{}, fmt.Errorf("MCP session: %w", ErrNotFound)
	}
	return m, s.describe(err)
}

// EndMCPSession implements MCPTasks.
func (s *SQLite) EndMCPSession(ctx context.Context, access, id string) error {
	return s.writeOp(ctx, func(t *tx) error {
		return t.exec("DELETE FROM mcp_sessions WHERE session_id = ? AND access = ?", id, access)
	})
}

// ExpireMCP implements MCPTasks.
func (s *SQLite) ExpireMCP(ctx context.Context, access string, inUse []string, idle time.Duration) (ended []string, err error) {
	err = s.writeOp(ctx, func(t *tx) error {
		ended = nil
		if err := t.exec("DELETE FROM mcp_tasks WHERE expires_at <= ?", t.now); err != nil {
			return err
		}
		for _, id := range inUse {
			if err := t.exec("UPDATE mcp_sessions SET used_at = ? WHERE session_id = ? AND access = ?", t.now, id, access); err != nil {
				return err
			}
		}
		err := t.rows(func(r scanner) error {
			var id string
			err := r.Scan(&id)
			ended = append(ended, id)
			return err
		}, "SELECT session_id FROM mcp_sessions WHERE access = ? AND used_at <= ?", access, t.after(-idle))
		if err != nil || len(ended) == 0 {
			return err
		}
		return t.exec("DELETE FROM mcp_sessions WHERE access = ? AND used_at <= ?", access, t.after(-idle))
	})
	if err != nil {
		return nil, err
	}
	return ended, nil
}
