package a2a

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/internal/wait/httpcall"
	"github.com/evalrun/evalrun/internal/wait/waittest"
)

var noon = time.Date(2026, 7, 6, 12, 0, 0, 0, time.UTC)

func sourceOf(t *testing.T, s *waittest.Server, to Interface, answered string, steps *waittest.Transport) wait.Source {
	t.Helper()
	given := &http.Client{}
	if steps != nil {
		given.Transport = steps
	}
	env := wait.Env{HTTP: httpcall.Client(given), Rand: func() float64 { return 0.5 }, Now: func() time.Time { return noon },
		Resolve: func(string) (string, bool) { return "s3cr3t", true }}
	t.Cleanup(env.HTTP.CloseIdleConnections)
	watch, err := json.Marshal(Watch{URL: s.URL, Headers: map[string]string{"X-Key": "${KEY}"}, Interface: to, Answered: answered})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(watch), "s3cr3t") {
		t.Error("a secret is stored")
	}
	source, err := NewSource(httpcall.Caller{Env: env}, watch)
	if err != nil {
		t.Fatal(err)
	}
	return source
}

var rpc = Interface{Endpoint: "/a2a", Binding: bindingRPC, Version: version1}

func TestSourceKeepsToItsInterface(t *testing.T) {
	for name, to := range map[string]Interface{
		"1.0 over JSON-RPC": rpc, "0.3 over JSON-RPC": {Endpoint: "/a2a", Binding: bindingRPC, Version: version03},
		"1.0 over HTTP": {Endpoint: "/a2a", Binding: bindingREST, Version: version1},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			state := "TASK_STATE_WORKING"
			s := waittest.NewServer(t, func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				task := fmt.Sprintf(`{"id":"t/1","status":{"state":%q}}`, state)
				if to.Binding != bindingREST {
					task = `{"jsonrpc":"2.0","id":"1","result":` + task + `}`
				} else if r.Method == http.MethodGet && !strings.HasPrefix(r.RequestURI, "/a2a/tasks/t%2F1?historyLength=") {
					t.Errorf("asked %s", r.RequestURI)
				}
				_, _ = w.Write([]byte(task))
			})
			steps := &waittest.Transport{}
			waittest.Run(t, waittest.Case{
				Source: sourceOf(t, s, to, "", steps), OnStep: steps.OnStep,
				Job: wait.Job{TriggerID: "trigger-1", ItemKey: "t/1", Since: noon, Spec: wait.Spec{Type: wait.TypeJob, ItemKey: "t/1"}},
				End: func() { mu.Lock(); defer mu.Unlock(); state = "TASK_STATE_COMPLETED" },
			})
		})
	}
}

// Whatever the task has come to is for the agent's next segment; only a task that cannot be asked
// for is a fault.
func TestCheck(t *testing.T) {
	question := `{"id":"t","status":{"state":"TASK_STATE_INPUT_REQUIRED","timestamp":"1"}}`
	asked, err := ParseTask(json.RawMessage(question))
	if err != nil {
		t.Fatal(err)
	}
	result := func(task string) string { return `{"jsonrpc":"2.0","id":"1","result":` + task + `}` }
	for name, test := range map[string]struct {
		status         int
		body, answered string
		done           bool
		category       fault.Category
		again          bool
	}{
		"working":              {200, result(`{"id":"t","status":{"state":"TASK_STATE_WORKING"}}`), "", false, "", false},
		"failed":               {200, result(`{"id":"t","status":{"state":"TASK_STATE_FAILED"}}`), "", true, "", false},
		"asks":                 {200, result(question), "", true, "", false},
		"asks what is past":    {200, result(question), asked.Question(), false, "", false},
		"asks something else":  {200, result(strings.Replace(question, `"1"`, `"2"`, 1)), asked.Question(), true, "", false},
		"lost":                 {200, `{"jsonrpc":"2.0","id":"1","error":{"code":-32001,"message":"Task not found"}}`, "", true, fault.JobLost, false},
		"an error":             {200, `{"jsonrpc":"2.0","id":"1","error":{"code":-32603,"message":"oh"}}`, "", true, fault.Job, false},
		"a page":               {200, `<html>`, "", true, fault.Job, false},
		"another task's state": {200, result(`{"id":"t","status":{"state":"x"}}`), "", true, fault.Job, false},
		"busy":                 {503, `busy`, "", false, "", true},
		"forbidden":            {403, `no`, "", true, fault.Job, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := waittest.NewServer(t, waittest.Reply(test.status, test.body))
			job := wait.Job{ItemKey: "t", Since: noon}
			got, err := sourceOf(t, s, rpc, test.answered, nil).Check(t.Context(), job)
			if errors.As(err, new(*wait.RetryError)) != test.again || got.Done != test.done {
				t.Errorf("got %+v, %v", got, err)
			}
			switch {
			case test.category == "" && got.Fault != nil, test.category != "" && (got.Fault == nil || got.Fault.Category != test.category):
				t.Errorf("got %+v", got.Fault)
			case test.done && got.Fault == nil && len(got.Payload) == 0, !test.done && !test.again && got.After <= 0:
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestCancelOfATaskThatHasEnded(t *testing.T) {
	for body, ok := range map[string]bool{
		`{"result":{"id":"t","status":{"state":"canceled"}}}`: true,
		`{"error":{"code":-32001,"message":"gone"}}`:          true,
		`{"error":{"code":-32002,"message":"it has ended"}}`:  true,
		`{"error":{"code":-32603,"message":"oh"}}`:            false,
	} {
		s := waittest.NewServer(t, waittest.Reply(200, body))
		if err := sourceOf(t, s, rpc, "", nil).Cancel(t.Context(), wait.Job{ItemKey: "t"}); (err == nil) != ok {
			t.Errorf("%s: got %v", body, err)
		}
	}
}
