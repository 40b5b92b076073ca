package main

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/peers/fakemesh"
	"github.com/evalrun/evalrun/internal/testenv"
	"github.com/evalrun/evalrun/runner"
)

// TestStartWhoseAnswerIsLost starts a job at a source that can be searched. The job begins and the
// answer is an error: evalrun must look for the job before it tries again, and find it.
func TestStartWhoseAnswerIsLost(t *testing.T) {
	testenv.NeedSlow(t)
	var starts atomic.Int32
	mux := http.NewServeMux()
	mux.HandleFunc("POST /jobs", func(w http.ResponseWriter, _ *http.Request) {
		starts.Add(1)
		http.Error(w, "the gateway has lost its patience", http.StatusBadGateway)
	})
	mux.HandleFunc("GET /jobs", func(w http.ResponseWriter, _ *http.Request) {
		found := `{"id": null}`
		if starts.Load() > 0 {
			found = `{"id": "job-1"}`
		}
		_, _ = w.Write([]byte(found))
	})
	mux.HandleFunc("GET /jobs/job-1", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"content": "done"}`)) })
	server := httptest.NewServer(mux)
	defer server.Close()

	t.Chdir(t.TempDir())
	t.Setenv("EVALRUN_STORE", "")
	set := `
version: "1.0"
id: s
name: S
agent:
  type: function
  command: [sh, -c, 'case $(cat) in *"\"resume\":null"*) echo "{\"__interrupt__\": {\"name\": \"P\", \"input_arguments\": {}}}" ;; *) echo "{}" ;; esac']
jobs:
  P:
    source: http
    interval: 10ms
    start: {url: "URL/jobs"}
    find: {url: "URL/jobs?trigger={triggerId}", itemKey: .id}
    status: {url: "URL/jobs/{itemKey}"}
evaluations: [{id: a, name: A, inputs: {}, evaluationCriterias: {}}]
`
	if err := os.WriteFile("set.yaml", []byte(strings.ReplaceAll(set, "URL", server.URL)), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if code := execute(t.Context(), []string{"run", "--wait", "--wait-timeout", "20s", "--allow-unscored", "set.yaml"}, strings.NewReader(""), &out, &out); code != exitOK {
		t.Errorf("exit code %d\n%s", code, &out)
	}
	if starts.Load() != 1 {
		t.Errorf("the job was started %d times\n%s", starts.Load(), &out)
	}
}

// TestSourcesAreAskedOnce resumes a run of more jobs than are asked at once, each of which is due
// again before the last has answered. The command must end all the same.
func TestSourcesAreAskedOnce(t *testing.T) {
	testenv.NeedSlow(t)
	var checks atomic.Int32
	mux := http.NewServeMux()
	mux.HandleFunc("POST /jobs", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) })
	mux.HandleFunc("GET /jobs/{id}", func(w http.ResponseWriter, _ *http.Request) {
		checks.Add(1)
		time.Sleep(20 * time.Millisecond) // it is slow; that is what matters here
		_, _ = w.Write([]byte(`{"done": false}`))
	})
	server := httptest.NewServer(mux)
	defer server.Close()

	t.Chdir(t.TempDir())
	t.Setenv("EVALRUN_STORE", "")
	set := `
version: "1.0"
id: s
name: S
agent: {type: function, command: [echo, '{"__interrupt__": {"name": "P", "input_arguments": {}}}']}
jobs:
  P:
    source: http
    interval: 1ms
    maxInterval: 1ms
    start: {url: "URL/jobs"}
    idempotencyHeader: Key
    status: {url: "URL/jobs/{itemKey}", done: .done}
epochs: 30
evaluations: [{id: a, name: A, inputs: {}, evaluationCriterias: {}}]
`
	if err := os.WriteFile("set.yaml", []byte(strings.ReplaceAll(set, "URL", server.URL)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"run", "--run-id", "r", "set.yaml"}, {"resume", "r"}, {"executor", "--once"}} {
		checks.Store(0)
		ended := make(chan int, 1)
		var out bytes.Buffer
		go func() { ended <- execute(context.Background(), args, strings.NewReader(""), &out, &out) }()
		select {
		case code := <-ended:
			if want := map[bool]int{true: exitOK, false: exitSuspended}[args[0] == "executor"]; code != want {
				t.Fatalf("evalrun %v: exit code %d, want %d\n%s", args, code, want, &out)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("evalrun %v does not end; it has asked %d times", args, checks.Load())
		}
		if n := checks.Load(); args[0] != "run" && (n < 30 || n > 60) {
			t.Errorf("evalrun %v asked %d times after 30 jobs", args, n)
		}
	}
}

// TestRemovingCancelsJobs removes a run whose job nobody has cancelled yet: the service that cancelled
// the run left that to an executor.
func TestRemovingCancelsJobs(t *testing.T) {
	var cancelled atomic.Int32
	mux := http.NewServeMux()
	mux.HandleFunc("POST /jobs", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) })
	mux.HandleFunc("GET /jobs/{id}", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"done": false}`)) })
	mux.HandleFunc("DELETE /jobs/{id}", func(http.ResponseWriter, *http.Request) { cancelled.Add(1) })
	server := httptest.NewServer(mux)
	defer server.Close()

	t.Chdir(t.TempDir())
	t.Setenv("EVALRUN_STORE", "")
	set := `
version: "1.0"
id: s
name: S
agent: {type: function, command: [echo, '{"__interrupt__": {"name": "P", "input_arguments": {}}}']}
jobs:
  P:
    source: http
    start: {url: "URL/jobs"}
    idempotencyHeader: Key
    status: {url: "URL/jobs/{itemKey}", done: .done}
    cancel: {method: DELETE, url: "URL/jobs/{itemKey}"}
evaluations: [{id: a, name: A, inputs: {}, evaluationCriterias: {}}]
`
	if err := os.WriteFile("set.yaml", []byte(strings.ReplaceAll(set, "URL", server.URL)), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if code := execute(t.Context(), []string{"run", "--run-id", "r", "set.yaml"}, strings.NewReader(""), &out, &out); code != exitSuspended {
		t.Fatalf("exit code %d\n%s", code, &out)
	}
	st, err := runner.Open(".evalrun", runner.OpenOptions{})
	if err == nil {
		_, err = st.Cancel(t.Context(), "r", runner.CancelOptions{Leave: true})
		err = errors.Join(err, st.Close())
	}
	if err != nil || cancelled.Load() != 0 {
		t.Fatal(err, cancelled.Load())
	}
	if code := execute(t.Context(), []string{"rm", "r"}, strings.NewReader(""), &out, &out); code != exitOK || cancelled.Load() != 1 {
		t.Errorf("exit code %d, the job was cancelled %d times\n%s", code, cancelled.Load(), &out)
	}
}

// TestLastToSuspendStartsItsJob has one rollout suspended after everything else that was due has
// been asked, again and again. Its job must be started all the same before the command ends.
func TestLastToSuspendStartsItsJob(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("EVALRUN_STORE", "")
	if err := syscall.Mkfifo("asked", 0o600); err != nil {
		t.Fatal(err)
	}
	var starts, checks atomic.Int32
	mux := http.NewServeMux()
	mux.HandleFunc("POST /jobs", func(w http.ResponseWriter, _ *http.Request) {
		starts.Add(1)
		_, _ = w.Write([]byte("{}"))
	})
	mux.HandleFunc("GET /jobs/{id}", func(w http.ResponseWriter, _ *http.Request) {
		if checks.Add(1) == 1 {
			if err := os.WriteFile("asked", []byte("now\n"), 0); err != nil {
				t.Error(err)
			}
		}
		_, _ = w.Write([]byte(`{"done": false}`))
	})
	server := httptest.NewServer(mux)
	defer server.Close()

	set := `
version: "1.0"
id: s
name: S
agent:
  type: function
  command: [sh, -c, 'case $(cat) in *last*) read -r when <asked ;; esac; echo "{\"__interrupt__\": {\"name\": \"P\", \"input_arguments\": {}}}"']
jobs:
  P:
    source: http
    interval: 1ms
    maxInterval: 1ms
    start: {url: "URL/jobs"}
    idempotencyHeader: Key
    status: {url: "URL/jobs/{itemKey}", done: .done}
evaluations:
  - {id: a, name: A, inputs: {is: first}, evaluationCriterias: {}}
  - {id: b, name: B, inputs: {is: last}, evaluationCriterias: {}}
`
	if err := os.WriteFile("set.yaml", []byte(strings.ReplaceAll(set, "URL", server.URL)), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if code := execute(t.Context(), []string{"run", "set.yaml"}, strings.NewReader(""), &out, &out); code != exitSuspended {
		t.Errorf("exit code %d, want %d\n%s", code, exitSuspended, &out)
	}
	if n := starts.Load(); n != 2 {
		t.Errorf("%d of 2 jobs were started\n%s", n, &out)
	}
}

// G27: watch ends when its job has, also at a registry that says nothing of that.
func TestWatchEndsWithAJobOfARegistry(t *testing.T) {
	var registry fakemesh.Registry
	server := httptest.NewServer(&registry)
	defer server.Close()
	c := &jobsClient{url: server.URL, http: server.Client()}
	id := c.submit(t, "key")
	registry.Change(id, func(j *fakemesh.Job) { j.Status = "completed" })
	t.Setenv("EVALRUN_TOKEN", "any")
	ended := make(chan int, 1)
	var out bytes.Buffer
	go func() {
		ended <- execute(context.Background(), []string{"jobs", "watch", id, "--server", server.URL}, strings.NewReader(""), &out, &out)
	}()
	if code := testenv.Receive(t, ended); code != exitOK {
		t.Errorf("exit code %d: %s", code, &out)
	}
}
