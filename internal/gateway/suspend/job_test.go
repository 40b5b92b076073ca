package suspend

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/wait"
)

// The tests of UiPath's own implementation (test_mcp_jobs.py), by their names.
func TestMCPJobs(t *testing.T) {
	plain := func(jsonobj.Object) (string, *mcp.Error) { return ordinary, nil }
	// robot gives a handle to whoever can wait, and the result to whoever brings the handle.
	robot := func(call jsonobj.Object) (string, *mcp.Error) {
		if call.Object("_meta").Object(gateway.MetaJob).Has("key") {
			return ordinary, nil
		}
		return aHandle, nil
	}
	done := func(state string) func(*Hooks) {
		return func(c *Hooks) {
			c.Check = func(context.Context, wait.Work) (wait.Status, error) {
				return wait.Status{Done: true, Payload: json.RawMessage(state)}, nil
			}
		}
	}
	always := func(meta string) func(int) string { return func(int) string { return meta } }

	t.Run("51 advertisement {version: 1} makes the session job-aware", func(t *testing.T) {
		s := &jobServer{meta: always(advertised), call: plain}
		a := behind(t, startJobServer(t, s), &memory{}, nil)
		a.text("run", "{}")
		if got := sends(s.made()[0]); got != `{"version":1}` {
			t.Error(got)
		}
	})
	t.Run("51b a version that is no integer is no advertisement", func(t *testing.T) {
		for _, version := range []string{`"1"`, "1.5", "0", "-1", "null", "true"} {
			s := &jobServer{meta: always(`,"_meta":{"uipath.com/job":{"version":` + version + `}}`), call: plain}
			a := behind(t, startJobServer(t, s), &memory{}, nil)
			a.text("run", "{}")
			if got := sends(s.made()[0]); got != "none" {
				t.Errorf("%s: %s", version, got)
			}
		}
	})
	t.Run("51c of a newer version the one that we know is spoken", func(t *testing.T) {
		s := &jobServer{meta: always(`,"_meta":{"uipath.com/job":{"version":7}}`), call: plain}
		a := behind(t, startJobServer(t, s), &memory{}, nil)
		a.text("run", "{}")
		if got := sends(s.made()[0]); got != `{"version":1}` {
			t.Error(got)
		}
	})
	t.Run("52 without an advertisement calls are plain, without any _meta", func(t *testing.T) {
		s := &jobServer{meta: always(""), call: robot}
		a := behind(t, startJobServer(t, s), &memory{}, nil)
		result, err := a.client.Call(t.Context(), mcp.Call{Method: mcp.MethodToolsCall, Params: json.RawMessage(`{"name":"run","arguments":{"a":1}}`)})
		if err != nil || string(result) != aHandle || len(a.suspended) > 0 {
			t.Errorf("%s %v", result, err)
		}
		if got := sends(s.made()[0]); got != "none" {
			t.Error(got)
		}
	})
	t.Run("53 a call of a job-aware session is looked after", func(t *testing.T) {
		s, ledger := &jobServer{meta: always(advertised), call: robot}, &memory{}
		a := behind(t, startJobServer(t, s), ledger, nil)
		a.text("run", "{}")
		if len(ledger.entries) != 1 || len(a.suspended) != 1 {
			t.Errorf("%v %v", ledger.entries, a.suspended)
		}
	})
	t.Run("54 START sends the version, and its handle is understood", func(t *testing.T) {
		s := &jobServer{meta: always(advertised), call: robot}
		a := behind(t, startJobServer(t, s), &memory{}, nil)
		if got := a.text("run", `{"n":9007199254740993}`); !strings.Contains(got, "end your turn") {
			t.Error(got)
		}
		call := s.made()[0]
		if got := sends(call); got != `{"version":1}` || string(call.Get("arguments")) != `{"n":9007199254740993}` {
			t.Error(got, string(call.Get("arguments")))
		}
		if w := a.suspended[0]; w.Job == nil || *w.Job != (wait.JobHandle{Key: "job-1", FolderKey: "folder-1"}) || w.Tool != "run" || string(w.Arguments) != `{"n":9007199254740993}` {
			t.Errorf("%+v", w)
		}
	})
	t.Run("55 START without a handle is an ordinary result", func(t *testing.T) {
		for _, section := range []string{
			``, `,"_meta":{}`, `,"_meta":{"uipath.com/job":{"version":1}}`, `,"_meta":{"uipath.com/job":{"key":"k"}}`, `,"_meta":{"uipath.com/job":{"key":"","folderKey":"f"}}`,
			`,"_meta":{"uipath.com/job":{"key":"k","folderKey":""}}`, `,"_meta":{"uipath.com/job":{"key":1,"folderKey":"f"}}`, `,"_meta":{"uipath.com/job":"x"}`, `,"_meta":{"uipath.com/job":["k"]}`,
		} {
			s := &jobServer{meta: always(advertised), call: func(jsonobj.Object) (string, *mcp.Error) {
				return `{"content":[{"type":"text","text":"42"}]` + section + `}`, nil
			}}
			a := behind(t, startJobServer(t, s), &memory{}, nil)
			result, err := a.client.Call(t.Context(), mcp.Call{Method: mcp.MethodToolsCall, Params: json.RawMessage(`{"name":"run","arguments":{}}`)})
			if err != nil || !strings.Contains(string(result), `"42"`) || len(a.suspended) > 0 {
				t.Errorf("%s: %s %v", section, result, err)
			}
		}
	})
	t.Run("56 FETCH sends the handle, and null for the arguments", func(t *testing.T) {
		s := &jobServer{meta: always(advertised), call: robot}
		a := behind(t, startJobServer(t, s), &memory{}, nil)
		result, err := FetchAt(t.Context(), a.endpoint, startedJob())
		if err != nil || string(result) != ordinary {
			t.Fatalf("%s %v", result, err)
		}
		call := s.made()[0]
		if got := sends(call); got != `{"key":"job-1","folderKey":"folder-1"}` || string(call.Get("arguments")) != "null" || call.Text("name") != "run" {
			t.Error(string(call.JSON()))
		}
	})
	t.Run("57 a result that is no job is returned, and nothing waits", func(t *testing.T) {
		s := &jobServer{meta: always(advertised), call: plain}
		a := behind(t, startJobServer(t, s), &memory{}, nil)
		if got := a.text("run", "{}"); got != "42" || len(a.suspended) > 0 {
			t.Error(got, a.suspended)
		}
	})
	t.Run("58 a handle is waited for once, then the fetched result is returned", func(t *testing.T) {
		s := &jobServer{meta: always(advertised), call: robot}
		a := behind(t, startJobServer(t, s), &memory{}, done(`{"state":"successful"}`))
		if got := a.text("run", "{}"); got != "42" || len(s.made()) != 2 || len(a.suspended) > 0 {
			t.Error(got, len(s.made()), a.suspended)
		}
	})
	t.Run("59 a faulted job gives its info, and is not fetched", func(t *testing.T) {
		for state, want := range map[string]string{
			`{"state":"faulted","info":"the printer burns"}`: "the printer burns", `{"State":"Faulted","Info":"the printer burns"}`: "the printer burns",
			`{"state":"FAULTED"}`: "Job for tool 'run' faulted",
		} {
			s := &jobServer{meta: always(advertised), call: robot}
			a := behind(t, startJobServer(t, s), &memory{}, done(state))
			if got := a.text("run", "{}"); got != want || len(s.made()) != 1 {
				t.Errorf("%s: %q, %d calls", state, got, len(s.made()))
			}
		}
	})
	t.Run("59b stopped and cancelled jobs are fetched", func(t *testing.T) {
		for _, state := range []string{"Stopped", "Cancelled", "Successful"} {
			s := &jobServer{meta: always(advertised), call: robot}
			a := behind(t, startJobServer(t, s), &memory{}, done(`{"State":"`+state+`"}`))
			if got := a.text("run", "{}"); got != "42" || len(s.made()) != 2 {
				t.Errorf("%s: %q, %d calls", state, got, len(s.made()))
			}
		}
	})

	// The open bugs of that implementation.
	t.Run("bug: the advertisement is not kept when a new session does not advertise", func(t *testing.T) {
		s := &jobServer{meta: func(session int) string {
			if session == 0 {
				return advertised
			}
			return ""
		}, call: plain}
		a := behind(t, startJobServer(t, s), &memory{}, nil)
		a.text("run", "{}")
		s.mu.Lock()
		s.lost = true
		s.mu.Unlock()
		a.text("run", "{}") // the session is lost before the server looks at the call
		a.text("run", `{"again":true}`)
		var got []string
		for _, call := range s.made() {
			got = append(got, sends(call))
		}
		if want := []string{`{"version":1}`, `{"version":1}`, "none", "none"}; !slices.Equal(got, want) {
			t.Errorf("sent %q, want %q", got, want)
		}
	})
	t.Run("bug: after a lost session a call is made once more, with the same key, and not for ever", func(t *testing.T) {
		s := &jobServer{meta: always(advertised), call: robot, lost: true}
		a := behind(t, startJobServer(t, s), &memory{}, nil)
		a.text("run", "{}")
		calls := s.made()
		if len(calls) != 2 || calls[0].Object("_meta").Text(mcp.MetaIdempotencyKey) != calls[1].Object("_meta").Text(mcp.MetaIdempotencyKey) {
			t.Errorf("%d calls: %v", len(calls), calls)
		}
	})
	t.Run("bug: a process that comes later fetches, whatever the handshake of the first was", func(t *testing.T) {
		s := &jobServer{meta: always(""), call: robot}
		result, err := Fetch(t.Context(), startJobServer(t, s), startedJob())
		if err != nil || string(result) != ordinary {
			t.Fatalf("%s %v", result, err)
		}
	})
	t.Run("bug: FETCH that gives the handle again is no result", func(t *testing.T) {
		s := &jobServer{meta: always(advertised), call: func(jsonobj.Object) (string, *mcp.Error) { return aHandle, nil }}
		if _, err := Fetch(t.Context(), startJobServer(t, s), startedJob()); !errors.Is(err, ErrNotDone) {
			t.Error(err)
		}
	})
}

// A call that was made before and has not ended is joined, never made again.
func TestCallsAreJoined(t *testing.T) {
	always := func(int) string { return advertised }
	robot := func(call jsonobj.Object) (string, *mcp.Error) { return aHandle, nil }

	t.Run("by a confused agent", func(t *testing.T) {
		s := &jobServer{meta: always, call: robot}
		a := behind(t, startJobServer(t, s), &memory{}, nil)
		a.text("run", `{"a":1,"b":2}`)
		a.text("run", `{"b": 2, "a": 1}`)
		if n := len(s.made()); n != 1 {
			t.Errorf("%d calls", n)
		}
	})
	t.Run("by several at once", func(t *testing.T) {
		s := &jobServer{meta: always, call: robot}
		a := behind(t, startJobServer(t, s), &memory{}, nil)
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() { a.text("run", `{}`) })
		}
		all.Wait()
		if n := len(s.made()); n != 1 {
			t.Errorf("%d calls", n)
		}
	})
	t.Run("after a crash, by another process", func(t *testing.T) {
		s, ledger := &jobServer{meta: always, call: robot}, &memory{}
		server := startJobServer(t, s)
		behind(t, server, ledger, nil).text("run", `{}`)
		a := behind(t, server, ledger, nil)
		a.text("run", `{}`)
		if n := len(s.made()); n != 1 || len(a.suspended) != 1 {
			t.Errorf("%d calls, %v", n, a.suspended)
		}
	})
	t.Run("an equal call after the result is another", func(t *testing.T) {
		s, ledger := &jobServer{meta: always, call: func(jsonobj.Object) (string, *mcp.Error) { return ordinary, nil }}, &memory{}
		a := behind(t, startJobServer(t, s), ledger, nil)
		a.text("run", `{}`)
		a.text("run", `{}`)
		if n := len(s.made()); n != 2 {
			t.Errorf("%d calls", n)
		}
	})
	t.Run("one of which nobody knows what it has started is not made again", func(t *testing.T) {
		s, ledger := &jobServer{meta: always, call: robot}, &memory{}
		if _, err := ledger.Begin(t.Context(), keyOf("rpa", "run", json.RawMessage("{}"))); err != nil {
			t.Fatal(err)
		}
		a := behind(t, startJobServer(t, s), ledger, nil)
		if got := a.text("run", `{}`); !strings.Contains(got, "nobody can tell") || len(s.made()) != 0 || len(a.unknown) != 1 {
			t.Errorf("%q, %d calls, %v", got, len(s.made()), a.unknown)
		}
	})
	t.Run("unless the server deduplicates", func(t *testing.T) {
		s, ledger := &jobServer{meta: func(int) string {
			return `,"_meta":{"uipath.com/job":{"version":1},"evalrun.dev/idempotency":{"version":1}}`
		}, call: robot}, &memory{}
		before, err := ledger.Begin(t.Context(), keyOf("rpa", "run", json.RawMessage("{}")))
		if err != nil {
			t.Fatal(err)
		}
		a := behind(t, startJobServer(t, s), ledger, nil)
		a.text("run", `{}`)
		if calls := s.made(); len(calls) != 1 || calls[0].Object("_meta").Text(mcp.MetaIdempotencyKey) != before.ID || len(a.suspended) != 1 {
			t.Errorf("%v %v", calls, a.suspended)
		}
	})
	t.Run("a tool that only reads is called without a record", func(t *testing.T) {
		s, ledger := &jobServer{meta: always, call: func(jsonobj.Object) (string, *mcp.Error) { return ordinary, nil }}, &memory{}
		a := behind(t, startJobServer(t, s), ledger, nil)
		a.text("read", `{}`)
		if len(ledger.entries) != 0 {
			t.Error(ledger.entries)
		}
	})
}

// What an agent sees of a server that starts jobs: no advertisement, and no schema that its answer
// might not keep to.
func TestAgentsDoNotSeeTheContract(t *testing.T) {
	s := &jobServer{meta: func(int) string { return advertised }}
	a := behind(t, startJobServer(t, s), &memory{}, nil)
	if result := string(a.client.InitializeResult()); strings.Contains(result, gateway.MetaJob) {
		t.Error(result)
	}
	list, err := a.client.Call(t.Context(), mcp.Call{Method: mcp.MethodToolsList, Params: json.RawMessage("{}")})
	if err != nil || strings.Count(string(list), "outputSchema") != 0 || strings.Count(string(list), "inputSchema") != 2 {
		t.Errorf("%s %v", list, err)
	}
	if ready, _ := a.endpoint.Listed(); !ready {
		t.Error("the client has seen the tools, and the endpoint does not say so")
	}
}

func startedJob() *wait.Work {
	return &wait.Work{Tool: "run", Job: &wait.JobHandle{Key: "job-1", FolderKey: "folder-1"}}
}

// G28: a job is fetched in the session in which it was started, which is stored with it, without
// another handshake, also when whoever has started it is gone. A server that has forgotten the session
// gets a new one.
func TestFetchGoesOnWithTheSession(t *testing.T) {
	s := &jobServer{meta: func(int) string { return advertised }, call: func(call jsonobj.Object) (string, *mcp.Error) {
		if call.Object("_meta").Object(gateway.MetaJob).Has("key") {
			return ordinary, nil
		}
		return aHandle, nil
	}}
	server := startJobServer(t, s)
	a := behind(t, server, &memory{}, nil)
	a.text("run", "{}")
	stored, err := json.Marshal(a.suspended[0])
	if err != nil {
		t.Fatal(err)
	}
	w, err := wait.DecodeWork(stored)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.access.Close(); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	before := len(s.sessions)
	s.mu.Unlock()
	for want := range 2 { // sessions beside those that were
		result, err := Fetch(t.Context(), server, w)
		s.mu.Lock()
		if n := len(s.sessions) - before; n != want || err != nil || string(result) != ordinary {
			t.Errorf("%d sessions more, not %d: %s %v", n, want, result, err)
		}
		s.sessions = make([]string, before) // it has forgotten them all
		s.mu.Unlock()
	}
}
