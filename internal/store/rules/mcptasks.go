package rules

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/evalrun/evalrun/internal/store"
)

// mcpTasks implements store.MCPTasks.
type mcpTasks struct{ db *db }

const (
	mcpTaskOpen    = "status IN ('working', 'input_required')"
	mcpTaskHead    = "id, task_id, access, session, server, tool, status, message, created_at, updated_at, expires_at, poll, "
	mcpTaskColumns = mcpTaskHead + "work, input_requests, result, error, told"
	mcpTaskBrief   = mcpTaskHead + "NULL, NULL, NULL, NULL, FALSE" // a column behind a large one costs as much to read as that
)

// AddMCPTask implements MCPTasks.
func (s mcpTasks) AddMCPTask(
	ctx context.Context, task store.MCPTask, limits store.MCPTaskLimits,
) (store.MCPTask, error) {
	err := s.db.writeOp(ctx, "add MCP task "+task.ID, func(w *write) error {
		if err := w.tx.Exec("DELETE FROM mcp_tasks WHERE expires_at <= ?", w.tx.now); err != nil {
			return err
		}
		for _, l := range []struct {
			limit int
			of    string
			query string
			args  []any
		}{
			{limits.Total, "the gateway",
				`SELECT coalesce(sum(n), 0) FROM (SELECT session, count(*) AS n FROM mcp_tasks WHERE access = ? GROUP BY session) s
				WHERE s.session IN ('', ?) OR EXISTS (SELECT 1 FROM mcp_sessions WHERE session_id = s.session)`,
				[]any{task.Access, task.Session}},
			{limits.PerSession, "the session",
				"SELECT count(*) FROM mcp_tasks WHERE access = ? AND session = ? AND session <> ''",
				[]any{task.Access, task.Session}},
		} {
			var n int
			if err := w.tx.Row([]any{&n}, l.query, l.args...); err != nil {
				return err
			}
			if l.limit > 0 && n >= l.limit {
				return fmt.Errorf("%w: %s has %d, which is the limit", store.ErrTooManyTasks, l.of, n)
			}
		}
		task.CreatedAt = time.UnixMicro(w.tx.now).UTC()
		task.UpdatedAt = task.CreatedAt
		return w.tx.Row([]any{&task.Seq},
			`INSERT INTO mcp_tasks (task_id, access, session, server, tool, status, message, created_at, updated_at, expires_at, poll,
			work, input_requests, result, error, told) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING id`,
			task.ID, task.Access, task.Session, task.Server, task.Tool, task.Status, task.Message, w.tx.now, w.tx.now,
			w.tx.after(task.TTL), task.Poll.Microseconds(),
			raw(task.Work), raw(task.InputRequests), raw(task.Result), raw(task.Error), task.Told)
	})
	if err != nil {
		return store.MCPTask{}, err
	}
	return task, nil
}

// ChangeMCPTask implements MCPTasks.
func (s mcpTasks) ChangeMCPTask(
	ctx context.Context, task store.MCPTask,
) (after store.MCPTask, changed bool, err error) {
	run := func(w *write) error {
		n, err := w.tx.change(
			`UPDATE mcp_tasks SET status = ?, message = ?, poll = ?, work = ?, input_requests = ?, result = ?, error = ?, told = ?, updated_at = ?
			WHERE task_id = ? AND `+mcpTaskOpen,
			task.Status, task.Message, task.Poll.Microseconds(), raw(task.Work), raw(task.InputRequests),
			raw(task.Result), raw(task.Error), task.Told, w.tx.now, task.ID)
		task.UpdatedAt = time.UnixMicro(w.tx.now).UTC()
		changed = n > 0
		return err
	}
	if task.Ended() {
		err = s.db.writeOp(ctx, "change MCP task "+task.ID, run)
	} else {
		err = s.db.writeRelaxed(ctx, "change MCP task "+task.ID, run) // the server says it again
	}
	return task, changed && err == nil, err
}

// RemoveMCPTask implements MCPTasks.
func (s mcpTasks) RemoveMCPTask(ctx context.Context, id string) error {
	return s.db.writeOp(ctx, "remove MCP task "+id, func(w *write) error {
		return w.tx.Exec("DELETE FROM mcp_tasks WHERE task_id = ?", id)
	})
}

// MCPTask implements MCPTasks.
func (s mcpTasks) MCPTask(ctx context.Context, access, session, id string) (store.MCPTask, error) {
	t, err := scanMCPTask(s.db.read.QueryRowContext(ctx,
		"SELECT "+mcpTaskColumns+" FROM mcp_tasks WHERE task_id = ? AND access = ? AND session = ? AND expires_at > ?",
		id, access, session, s.db.now().UnixMicro()))
	if errors.Is(err, sql.ErrNoRows) {
		return store.MCPTask{}, fmt.Errorf("MCP task: %w", store.ErrNotFound)
	}
	return t, s.db.describe(err, "read MCP task", id)
}

// MCPTasks implements MCPTasks.
func (s mcpTasks) MCPTasks(
	ctx context.Context, access, session string, after int64, limit int,
) ([]store.MCPTask, error) {
	return s.list(ctx, mcpTaskBrief, "access = ? AND session = ? AND id > ? AND expires_at > ? ORDER BY id LIMIT ?",
		access, session, after, s.db.now().UnixMicro(), limit)
}

// OpenMCPTasks implements MCPTasks.
func (s mcpTasks) OpenMCPTasks(ctx context.Context, access string) ([]store.MCPTask, error) {
	return s.list(ctx, mcpTaskColumns, mcpTaskOpen+" AND access = ? ORDER BY id", access)
}

func (s mcpTasks) list(ctx context.Context, columns, where string, args ...any) (out []store.MCPTask, err error) {
	defer func() { err = s.db.describe(err, "list MCP tasks") }()
	rows, err := s.db.read.QueryContext(ctx, "SELECT "+columns+" FROM mcp_tasks WHERE "+where, args...)
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
func (s mcpTasks) TellMCPTasks(ctx context.Context, access, session string) (out []store.MCPTask, err error) {
	err = s.db.writeOp(ctx, "list MCP tasks that have changed", func(w *write) error {
		const where = " WHERE access = ? AND session = ? AND NOT told AND NOT "
		out = nil
		err := w.tx.rows(func(r scanner) error {
			task, err := scanMCPTask(r)
			task.Told = true
			out = append(out, task)
			return err
		}, "SELECT "+mcpTaskBrief+" FROM mcp_tasks"+where+mcpTaskOpen+" ORDER BY id", access, session)
		if err != nil || len(out) == 0 {
			return err
		}
		return w.tx.Exec("UPDATE mcp_tasks SET told = TRUE"+where+mcpTaskOpen, access, session)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// PutMCPSession implements MCPTasks.
func (s mcpTasks) PutMCPSession(ctx context.Context, m store.MCPSession) error {
	return s.db.writeOp(ctx, "store MCP session "+m.ID, func(w *write) error {
		return w.tx.Exec(
			`INSERT INTO mcp_sessions (session_id, access, endpoint, version, capabilities, info, created_at, used_at)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (session_id) DO UPDATE SET access = excluded.access, endpoint = excluded.endpoint,
			version = excluded.version, capabilities = excluded.capabilities, info = excluded.info,
			created_at = excluded.created_at, used_at = excluded.used_at`,
			m.ID, m.Access, m.Endpoint, m.Version, raw(m.Capabilities), raw(m.Info), w.tx.now, w.tx.now)
	})
}

// MCPSession implements MCPTasks.
func (s mcpTasks) MCPSession(ctx context.Context, access, endpoint, id string) (store.MCPSession, error) {
	m := store.MCPSession{ID: id, Access: access, Endpoint: endpoint}
	err := s.db.read.QueryRowContext(ctx,
		"SELECT version, capabilities, info FROM mcp_sessions WHERE session_id = ? AND access = ? AND endpoint = ?",
		id, access, endpoint).
		Scan(&m.Version, (*[]byte)(&m.Capabilities), (*[]byte)(&m.Info))
	if errors.Is(err, sql.ErrNoRows) {
		return store.MCPSession{}, fmt.Errorf("MCP session: %w", store.ErrNotFound)
	}
	return m, s.db.describe(err, "read MCP session", id)
}

// EndMCPSession implements MCPTasks.
func (s mcpTasks) EndMCPSession(ctx context.Context, access, id string) error {
	return s.db.writeOp(ctx, "end MCP session "+id, func(w *write) error {
		return w.tx.Exec("DELETE FROM mcp_sessions WHERE session_id = ? AND access = ?", id, access)
	})
}

// ExpireMCP implements MCPTasks.
func (s mcpTasks) ExpireMCP(
	ctx context.Context, access string, inUse []string, idle time.Duration,
) (ended []string, err error) {
	err = s.db.writeOp(ctx, "forget old MCP sessions", func(w *write) error {
		ended = nil
		if err := w.tx.Exec("DELETE FROM mcp_tasks WHERE expires_at <= ?", w.tx.now); err != nil {
			return err
		}
		for _, id := range inUse {
			if err := w.tx.Exec(
				"UPDATE mcp_sessions SET used_at = ? WHERE session_id = ? AND access = ?", w.tx.now, id, access); err != nil {
				return err
			}
		}
		err := w.tx.rows(func(r scanner) error {
			var id string
			err := r.Scan(&id)
			ended = append(ended, id)
			return err
		}, "SELECT session_id FROM mcp_sessions WHERE access = ? AND used_at <= ?", access, w.tx.after(-idle))
		if err != nil || len(ended) == 0 {
			return err
		}
		return w.tx.Exec("DELETE FROM mcp_sessions WHERE access = ? AND used_at <= ?", access, w.tx.after(-idle))
	})
	if err != nil {
		return nil, err
	}
	return ended, nil
}

func scanMCPTask(r scanner) (t store.MCPTask, err error) {
	var created, updated, expires, poll int64
	err = r.Scan(&t.Seq, &t.ID, &t.Access, &t.Session, &t.Server, &t.Tool, &t.Status, &t.Message,
		&created, &updated, &expires, &poll,
		(*[]byte)(&t.Work), (*[]byte)(&t.InputRequests), (*[]byte)(&t.Result), (*[]byte)(&t.Error), &t.Told)
	t.CreatedAt, t.UpdatedAt = time.UnixMicro(created).UTC(), time.UnixMicro(updated).UTC()
	t.TTL, t.Poll = time.Duration(expires-created)*time.Microsecond, time.Duration(poll)*time.Microsecond
	return t, err
}
