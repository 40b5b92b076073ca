package mcpserver_test

import (
	"net/http"
	"runtime"
	"testing"

	"github.com/evalrun/evalrun/internal/access"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/testenv"
)

// A client starts a run as a task, loses its connection, comes back in another session and gets the
// result. Nobody else has the task.
func TestATaskOutlivesItsClient(t *testing.T) {
	t.Parallel()
	eras(t, func(t *testing.T, era mcp.Era) {
		w := newWorld(t)
		c := w.connect(t, era, w.token)
		id := c.Task("run_eval_set", `{"evalSet":"waits"}`)
		if err := c.Detach(); err != nil {
			t.Fatal(err)
		}

		c = w.connect(t, era, w.token)
		if got := c.Get(id); got.Text("status") != "working" || got.Has("ttl") == got.Has("ttlMs") {
			t.Errorf("%s", got.JSON())
		}
		stranger := w.connect(t, era, w.newToken("other", access.Admin))
		stranger.Refused(mcp.CodeInvalidParams, mcp.MethodTasksGet, `{"taskId":%q}`, id)
		stranger.Refused(mcp.CodeInvalidParams, mcp.MethodTasksCancel, `{"taskId":%q}`, id)
		w.release()
		text, isError, err := c.Result(id)
		if isError || err != nil {
			t.Error(isError, err)
		}
		holds(t, text, `"runId":"`+id+`"`, `"status":"successful"`, `"final":true`, `"verdict":"finished"`, `"failed":[]`, `"score":1`)
		if got := tool(c, "get_results", `{"runId":"`+id+`"}`).Text("status"); got != "successful" {
			t.Error(got)
		}
		holds(t, w.audit.String(), `"action":"run","object":"`+id+`"`, `"remote":"127.0.0.1:`)
	})
}

func TestATaskThatFails(t *testing.T) {
	t.Parallel()
	eras(t, func(t *testing.T, era mcp.Era) {
		w := newWorld(t)
		c := w.connect(t, era, w.token)
		id := c.Task("run_eval_set", `{"evalSet":"fails"}`)
		text, isError, err := c.Result(id)
		if !isError || err != nil {
			t.Error(isError, err)
		}
		holds(t, text, `"status":"faulted"`, `"category":"exit"`, "out of paper")
		want := map[mcp.Era]string{mcp.Legacy: "failed", mcp.Modern: "completed"}[era]
		if got := c.Get(id).Text("status"); got != want {
			t.Error(got)
		}
		// A gate that is not met is a result like every other.
		id = c.Task("run_eval_set", `{"evalSet":"wrong"}`)
		text, isError, err = c.Result(id)
		if isError || err != nil {
			t.Error(isError, err)
		}
		holds(t, text, `"failed":[{`, `"score":0`, `"output":{"answer":"no"}`)
	})
}

func TestATaskIsCancelled(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	eras(t, func(t *testing.T, era mcp.Era) {
		w := newWorld(t)
		c := w.connect(t, era, w.token)
		id := c.Task("run_eval_set", `{"evalSet":"waits"}`)
		answer := c.Must(mcp.MethodTasksCancel, `{"taskId":%q}`, id)
		if era == mcp.Legacy && answer.Text("status") != "cancelled" {
			t.Errorf("%s", answer.JSON())
		}
		if got := c.Get(id).Text("status"); got != "cancelled" {
			t.Error(got)
		}
		if era == mcp.Legacy { // the other era acknowledges it
			c.Refused(mcp.CodeInvalidParams, mcp.MethodTasksCancel, `{"taskId":%q}`, id)
			c.Refused(mcp.CodeInternal, mcp.MethodTasksResult, `{"taskId":%q}`, id)
		} else {
			c.Must(mcp.MethodTasksCancel, `{"taskId":%q}`, id)
		}
		holds(t, string(tool(c, "get_results", `{"runId":"`+id+`","waitSeconds":20}`).JSON()), `"status":"cancelled"`, `"final":true`)
		c.Refused(mcp.CodeInvalidParams, mcp.MethodTasksGet, `{"taskId":"no-such-task"}`)
	})
}

// Clients are told of their tasks, also after they have come back.
func TestStatusIsTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	t.Run("legacy", func(t *testing.T) {
		c := w.connect(t, mcp.Legacy, w.token)
		id := c.Task("run_eval_set", `{"evalSet":"suspends"}`)
		trigger := openTrigger(c, id)
		tool(c, "deliver", `{"triggerId":"`+trigger+`","payload":{"ok":true}}`)
		c.Note(id, "completed")
	})
	t.Run("modern", func(t *testing.T) {
		c := w.connect(t, mcp.Modern, w.token)
		id := c.Task("run_eval_set", `{"evalSet":"suspends"}`)
		go func() { // it ends with the connection
			_, _ = c.Call(t.Context(), mcp.Call{Method: mcp.MethodListen, Params: []byte(`{"notifications":{"taskIds":["` + id + `","unknown"],"toolsListChanged":true}}`), Notified: c.Notified})
		}()
		ack := <-c.Notes
		if got := string(ack.Object("notifications").JSON()); ack.Text("method") != mcp.NoteAcknowledged || got != `{"taskIds":["`+id+`"]}` {
			t.Errorf("%s", ack.JSON())
		}
		tool(c, "deliver", `{"triggerId":"`+openTrigger(c, id)+`","payload":{"ok":true}}`)
		note := c.Note(id, "completed")
		if note.Object("result").Get("content") == nil || note.Object("_meta").Get(mcp.MetaSubscriptionID) == nil {
			t.Errorf("%s", note.JSON())
		}
	})
}

func TestTasksAreListed(t *testing.T) {
	t.Parallel()
	w := newIdleWorld(t)
	c := w.connect(t, mcp.Legacy, w.token)
	want := map[string]bool{}
	for range 101 {
		want[c.Task("run_eval_set", `{"evalSet":"suspends"}`)] = true
	}
	page := c.Must(mcp.MethodTasksList, `{}`)
	if first := page.Get("tasks"); len(page.Text("nextCursor")) == 0 {
		t.Fatalf("%s", first)
	}
	last := c.Must(mcp.MethodTasksList, `{"cursor":%q}`, page.Text("nextCursor"))
	if last.Has("nextCursor") {
		t.Errorf("%s", last.JSON())
	}
	for _, p := range [][]byte{page.Get("tasks"), last.Get("tasks")} {
		for _, id := range idsOf(t, p, "taskId") {
			delete(want, id)
		}
	}
	if len(want) > 0 {
		t.Errorf("missing: %v", want)
	}
	c.Refused(mcp.CodeInvalidParams, mcp.MethodTasksList, `{"cursor":"x"}`)
	other := w.connect(t, mcp.Legacy, w.newToken("other", access.Admin))
	if got := string(other.Must(mcp.MethodTasksList, `{}`).JSON()); got != `{"tasks":[]}` {
		t.Error(got)
	}
	w.connect(t, mcp.Modern, w.token).Refused(mcp.CodeMethodNotFound, mcp.MethodTasksList, `{}`)
}

// A task costs a goroutine only while its client listens.
func TestATaskThatNobodyWatchesCostsNoGoroutine(t *testing.T) {
	w := newIdleWorld(t)
	tool(w.plain(t, w.token), "list_runs", `{}`)
	http.DefaultClient.CloseIdleConnections()
	before := runtime.NumGoroutine()
	c := w.connect(t, mcp.Legacy, w.token)
	for range 20 {
		c.Task("run_eval_set", `{"evalSet":"suspends"}`)
	}
	if !testenv.Eventually(func() bool { return runtime.NumGoroutine() >= before+20 }) {
		t.Error("the client is not told of its tasks")
	}
	if err := c.Detach(); err != nil {
		t.Fatal(err)
	}
	http.DefaultClient.CloseIdleConnections()
	testenv.NoMoreGoroutines(t, before)
}
