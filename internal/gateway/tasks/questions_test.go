package tasks

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/gateway/gatewaytest"
	"github.com/evalrun/evalrun/internal/gateway/mcptask"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/sqlite"
)

// startTask makes a task of a client that can be asked, which nobody works on.
func startTask(t *testing.T, server gateway.Server) *task {
	t.Helper()
	db, err := sqlite.Open(t.TempDir(), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	k, err := New(Options{Store: db}, nil)
	if err != nil {
		t.Fatal(err)
	}
	e := gateway.NewEndpoint(server, k.Policy, time.Now)
	t.Cleanup(e.Close)
	made := k.facades[server.Name].blankTask(store.MCPTask{ID: "ours", Server: server.Name, Status: mcptask.Working, TTL: time.Hour})
	made.questions.capabilities = jsonobj.Object{{Key: "elicitation", Value: mcp.EmptyObject}}
	return made
}

// input is what the record of a task says that is open.
func input(t *task) (status string, requests jsonobj.Object) {
	rec, _ := t.record()
	requests, _ = jsonobj.ParseObject(rec.InputRequests)
	return rec.Status, requests
}

const asksName = `{"message":"Your name?"}`

// A question is in the task's record until it is answered, by its key.
func TestAQuestionIsShownUntilItIsAnswered(t *testing.T) {
	t.Parallel()
	task := startTask(t, gateway.Server{Name: "s"})
	answered := make(chan string, 1)
	go func() {
		result, err := task.questions.ask(t.Context(), mcp.AskElicitation, json.RawMessage(asksName))
		if err != nil {
			result = err.JSON()
		}
		answered <- string(result)
	}()
	gatewaytest.WaitFor(t, task.questions.posed)
	gatewaytest.Eventually(t, "the question to be shown", func() bool {
		status, _ := input(task)
		return status == mcptask.InputRequired
	})
	_, requests := input(task)
	if len(requests) != 1 || string(jsonobj.Get(requests[0].Value, "params")) != asksName {
		t.Fatalf("the record asks %s", requests.JSON())
	}
	for _, key := range []string{"another", requests[0].Key, requests[0].Key} { // a second answer is dropped
		if err := task.questions.respond(t.Context(), jsonobj.Object{{Key: key, Value: json.RawMessage(`{"action":"accept"}`)}}); err != nil {
			t.Error(err)
		}
	}
	if got := gatewaytest.WaitFor(t, answered); got != `{"action":"accept"}` {
		t.Error(got)
	}
	if status, requests := input(task); status != mcptask.Working || len(requests) > 0 {
		t.Errorf("afterwards the task is %s and asks %s", status, requests.JSON())
	}
}

// Who asks for a task that ends is told so, and nobody is asked any more.
func TestQuestionsEndWithTheTask(t *testing.T) {
	t.Parallel()
	task := startTask(t, gateway.Server{Name: "s"})
	failed := make(chan error, 1)
	go func() {
		_, err := task.questions.askAll(t.Context(), jsonobj.Object{{Key: "name", Value: json.RawMessage(`{"method":"elicitation/create","params":` + asksName + `}`)}})
		failed <- err
	}()
	gatewaytest.WaitFor(t, task.questions.posed)
	task.stop("not wanted")
	if err := gatewaytest.WaitFor(t, failed); err == nil {
		t.Error("the question was answered by nobody")
	}
	if q := task.questions.claim(); q != nil {
		t.Errorf("%s is still to be asked", q.request)
	}
}

// What a client cannot answer it is not asked.
func TestAClientIsAskedWhatItCanAnswer(t *testing.T) {
	t.Parallel()
	task := startTask(t, gateway.Server{Name: "s"})
	result, err := task.questions.ask(t.Context(), mcp.AskRoots, nil)
	if err != nil || string(result) != `{"roots":[]}` {
		t.Errorf("%s, %v", result, err)
	}
	if _, err := task.questions.ask(t.Context(), mcp.AskSampling, nil); err == nil || err.Code != mcp.CodeMethodNotFound {
		t.Errorf("expected code %d, got %v", mcp.CodeMethodNotFound, err)
	}
	if status, _ := input(task); status != mcptask.Working {
		t.Error(status)
	}
}

// A question is asked by one request at a time. Another may when it was given back, of which those
// who wait are told.
func TestAQuestionIsAskedByOne(t *testing.T) {
	t.Parallel()
	task := startTask(t, gateway.Server{Name: "s"})
	q := task.questions
	q.replace(jsonobj.Object{{Key: "a", Value: mcp.EmptyObject}, {Key: "b", Value: mcp.EmptyObject}}, true)
	a, b := q.claim(), q.claim()
	if a == nil || b == nil || a == b || q.claim() != nil {
		t.Fatalf("claimed %v, %v", a, b)
	}
	_, changed := task.record()
	q.release(a)
	gatewaytest.WaitFor(t, changed)
	if again := q.claim(); again != a {
		t.Errorf("expected the question that was given back, got %v", again)
	}
}

// A modern server is told what was answered under its own keys. It may go on naming a question for
// a while, which is not asked again.
func TestAnAnsweredKeyIsNotAskedAgain(t *testing.T) {
	t.Parallel()
	u := startUpstreamTask(t, mcp.Modern, "confirm_delete", `{"filename":"a.txt"}`)
	task := startTask(t, gateway.Server{Name: "tasks"})
	task.upstreamTask = u
	w, err := u.get(t.Context())
	if err != nil || w.Status != mcptask.InputRequired {
		t.Fatalf("%+v, %v", w, err)
	}
	task.questions.replace(w.InputRequests, true)
	one := task.questions.claim()
	one.given = json.RawMessage(`{"action":"accept","content":{"confirm":true}}`)
	if err := task.questions.handIn(context.Background(), one); err != nil {
		t.Fatal(err)
	}
	gatewaytest.WaitFor(t, task.due) // the server is asked at once what comes of it
	task.questions.replace(w.InputRequests, true)
	if again := task.questions.claim(); again != nil {
		t.Errorf("%s is asked again", again.request)
	}
}
