package storetest

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/evalrun/evalrun/internal/store"
)

// mcpTask is a task that has just begun.
func mcpTask(id, session string) store.MCPTask {
	return store.MCPTask{
		ID: id, Access: "token", Session: session, Server: "rpa", Tool: "run", Status: "working", TTL: time.Hour,
		Poll: time.Second, Work: json.RawMessage(`{"taskId":"theirs"}`)}
}

func mcpTaskSpecs(s *suite) {
	add := func(w *world, t store.MCPTask) store.MCPTask {
		w.Helper()
		added, err := w.a.AddMCPTask(w.ctx, t, store.MCPTaskLimits{})
		w.must(err)
		return added
	}
	missing := func(w *world, access, session, id string) {
		w.Helper()
		if _, err := w.a.MCPTask(w.ctx, access, session, id); !errors.Is(err, store.ErrNotFound) {
			w.Errorf("task %s of %q, %q: %v", id, access, session, err)
		}
	}
	ids := func(tasks []store.MCPTask) (out []string) {
		for _, t := range tasks {
			out = append(out, t.ID)
		}
		return out
	}

	s.spec("a task is found by whoever it belongs to, in every process, and by nobody else", func(w *world) {
		want := mcpTask("1", "s")
		want.CreatedAt, want.UpdatedAt = w.Now(), w.Now()
		got := add(w, mcpTask("1", "s"))
		want.Seq = got.Seq
		equal(w, "added", got, want)
		got, err := w.another().MCPTask(w.ctx, "token", "s", "1")
		w.must(err)
		equal(w, "found", got, want)
		missing(w, "other token", "s", "1")
		missing(w, "token", "other", "1")
		missing(w, "token", "", "1")
		missing(w, "token", "s", "2")
	})

	s.spec("a task changes until it has ended", func(w *world) {
		t := add(w, mcpTask("1", "s"))
		w.advance(time.Minute)
		t.Status, t.Message, t.InputRequests =
			"input_required", "who?", json.RawMessage(`{"k":{"method":"elicitation/create"}}`)
		after, changed, err := w.a.ChangeMCPTask(w.ctx, t)
		w.must(err)
		t.UpdatedAt = w.Now()
		equal(w, "changed", changed, true)
		equal(w, "after", after, t)
		t.Status, t.Message, t.InputRequests, t.Result, t.Told =
			"completed", "", nil, json.RawMessage(`{"n": 9007199254740993}`), true
		_, changed, err = w.a.ChangeMCPTask(w.ctx, t)
		w.must(err)
		equal(w, "ended", changed, true)
		again := t
		again.Status, again.Result, again.Error = "failed", nil, json.RawMessage(`{"code":1,"message":""}`)
		_, changed, err = w.a.ChangeMCPTask(w.ctx, again)
		w.must(err)
		equal(w, "changed after its end", changed, false)
		got, err := w.a.MCPTask(w.ctx, "token", "s", "1")
		w.must(err)
		equal(w, "kept", got, t)
	})

	s.spec("a task is forgotten when its time is over, or when it is removed", func(w *world) {
		add(w, mcpTask("1", "s"))
		t := add(w, mcpTask("2", "s"))
		w.must(w.a.RemoveMCPTask(w.ctx, "2"))
		missing(w, "token", "s", "2")
		w.advance(time.Hour)
		missing(w, "token", "s", "1")
		list, err := w.a.MCPTasks(w.ctx, "token", "s", 0, 10)
		w.must(err)
		equal(w, "list", len(list), 0)
		_, err = w.a.ExpireMCP(w.ctx, "other token", nil, time.Hour)
		w.must(err)
		_, changed, err := w.a.ChangeMCPTask(w.ctx, t)
		w.must(err)
		equal(w, "changed", changed, false)
	})

	s.spec("tasks are listed by pages, the oldest first", func(w *world) {
		for _, id := range []string{"c", "a", "b"} {
			add(w, mcpTask(id, "s"))
		}
		add(w, mcpTask("d", "other"))
		first, err := w.a.MCPTasks(w.ctx, "token", "s", 0, 2)
		w.must(err)
		equal(w, "first", ids(first), []string{"c", "a"})
		second, err := w.a.MCPTasks(w.ctx, "token", "s", first[1].Seq, 2)
		w.must(err)
		equal(w, "second", ids(second), []string{"b"})
	})

	s.spec("lists and what is told leave out what may be large", func(w *world) {
		t := add(w, mcpTask("1", "s"))
		t.Status, t.Message, t.InputRequests, t.Result, t.Error =
			"completed", "done", json.RawMessage("{}"), json.RawMessage("{}"), json.RawMessage("{}")
		t, _, err := w.a.ChangeMCPTask(w.ctx, t)
		w.must(err)
		t.Work, t.InputRequests, t.Result, t.Error = nil, nil, nil, nil
		list, err := w.a.MCPTasks(w.ctx, "token", "s", 0, 10)
		w.must(err)
		equal(w, "list", list, []store.MCPTask{t})
		told, err := w.a.TellMCPTasks(w.ctx, "token", "s")
		w.must(err)
		t.Told = true
		equal(w, "told", told, []store.MCPTask{t})
	})

	s.spec("limits hold for a session and for all, and what has expired makes room", func(w *world) {
		limits := store.MCPTaskLimits{Total: 3, PerSession: 2}
		try := func(id, session string) error {
			_, err := w.a.AddMCPTask(w.ctx, mcpTask(id, session), limits)
			return err
		}
		w.must(w.a.PutMCPSession(w.ctx, store.MCPSession{ID: "s", Access: "token", Endpoint: "e", Version: "v"}))
		w.must(try("1", "s"))
		w.must(try("2", "s"))
		if err := try("3", "s"); !errors.Is(err, store.ErrTooManyTasks) {
			w.Errorf("a third of the session: %v", err)
		}
		w.must(try("3", ""))
		if err := try("4", ""); !errors.Is(err, store.ErrTooManyTasks) {
			w.Errorf("a fourth: %v", err)
		}
		w.advance(time.Hour)
		w.must(try("4", "s"))
	})

	// S8
	s.spec("tasks that nobody can ask for any more are not in the way of others", func(w *world) {
		try := func(id, session string) error {
			_, err := w.a.AddMCPTask(w.ctx, mcpTask(id, session), store.MCPTaskLimits{Total: 2})
			return err
		}
		w.must(w.a.PutMCPSession(w.ctx, store.MCPSession{ID: "s", Access: "token", Endpoint: "e", Version: "v"}))
		w.must(try("1", "s"))
		w.must(try("2", "s"))
		if err := try("3", ""); !errors.Is(err, store.ErrTooManyTasks) {
			w.Errorf("while the session is there: %v", err)
		}
		w.must(w.a.EndMCPSession(w.ctx, "token", "s"))
		w.must(try("3", ""))
		w.must(try("4", ""))
		if err := try("5", ""); !errors.Is(err, store.ErrTooManyTasks) {
			w.Errorf("a third that counts: %v", err)
		}
	})

	s.spec("the tasks that have not ended are found for another process", func(w *world) {
		add(w, mcpTask("1", "s"))
		t := add(w, mcpTask("2", ""))
		add(w, mcpTask("3", ""))
		t.Status = "cancelled"
		_, _, err := w.a.ChangeMCPTask(w.ctx, t)
		w.must(err)
		open, err := w.another().OpenMCPTasks(w.ctx, "token")
		w.must(err)
		equal(w, "open", ids(open), []string{"1", "3"})
		open, err = w.a.OpenMCPTasks(w.ctx, "other token")
		w.must(err)
		equal(w, "of others", len(open), 0)
	})

	s.spec("an end is told once", func(w *world) {
		add(w, mcpTask("working", "s"))
		for _, id := range []string{"told", "untold"} {
			t := add(w, mcpTask(id, "s"))
			t.Status, t.Told = "completed", id == "told"
			_, _, err := w.a.ChangeMCPTask(w.ctx, t)
			w.must(err)
		}
		for _, want := range [][]string{{"untold"}, nil} {
			told, err := w.a.TellMCPTasks(w.ctx, "token", "s")
			w.must(err)
			equal(w, "told", ids(told), want)
		}
	})
}

func mcpSessionSpecs(s *suite) {
	session := store.MCPSession{
		ID: "s", Access: "token", Endpoint: "rpa", Version: "2025-11-25", Capabilities: json.RawMessage(`{"roots":{}}`),
		Info: json.RawMessage(`{"name":"c"}`)}

	s.spec("a session is found in every process until it is ended", func(w *world) {
		w.must(w.a.PutMCPSession(w.ctx, session))
		got, err := w.another().MCPSession(w.ctx, "token", "rpa", "s")
		w.must(err)
		equal(w, "session", got, session)
		for _, other := range [][3]string{{"other", "rpa", "s"}, {"token", "other", "s"}, {"token", "rpa", "other"}} {
			if _, err := w.a.MCPSession(w.ctx, other[0], other[1], other[2]); !errors.Is(err, store.ErrNotFound) {
				w.Errorf("%v: %v", other, err)
			}
		}
		w.must(w.a.EndMCPSession(w.ctx, "token", "s"))
		if _, err := w.a.MCPSession(w.ctx, "token", "rpa", "s"); !errors.Is(err, store.ErrNotFound) {
			w.Errorf("after its end: %v", err)
		}
	})

	s.spec("sessions that nobody uses are forgotten", func(w *world) {
		used := session
		used.ID = "used"
		w.must(w.a.PutMCPSession(w.ctx, session))
		w.must(w.a.PutMCPSession(w.ctx, used))
		w.advance(time.Minute)
		ended, err := w.a.ExpireMCP(w.ctx, "token", []string{"used"}, time.Hour)
		w.must(err)
		equal(w, "at once", len(ended), 0)
		w.advance(59 * time.Minute)
		ended, err = w.a.ExpireMCP(w.ctx, "token", nil, time.Hour)
		w.must(err)
		equal(w, "ended", ended, []string{"s"})
		_, err = w.a.MCPSession(w.ctx, "token", "rpa", "used")
		w.must(err)
	})
}
