package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/testenv"
)

// A server that is killed under load loses no job, event or cancellation that it has acknowledged,
// makes no job twice, and whoever watches a job goes on by itself.
func TestAKilledServerLosesNoJob(t *testing.T) {
	testenv.NeedSlow(t)
	kills := 4
	if os.Getenv(testenv.Long) != "" {
		kills = 50
	}
	k := newKillable(t, map[string]string{
		"serve.yaml": "agents: [{type: function, name: echo, command: [cat]}]\nevalSets: {done: done.json}\n",
		"done.json":  `{"version": "1.0", "id": "done", "name": "Done", "agent": "echo", "evaluations": [{"id": "a", "name": "A", "inputs": {}, "evaluationCriterias": {}}]}`,
	})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := ln.Addr().String()
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	serve := func() *exec.Cmd {
		return k.start("serve", "--config", "serve.yaml", "--listen", address, "--no-executor", "--rate", "100000")
	}
	server := serve()
	c := &jobsClient{url: "http://" + address, token: k.token(), http: &http.Client{Timeout: 10 * time.Second}}
	watched := c.submit(t, "watched")
	watcher, seen := k.beside(c, "jobs", "watch", watched)
	waiter, waited := k.beside(c, "jobs", "wait", watched)

	load := newJobsLoad(t, c)
	for range kills {
		time.Sleep(50*time.Millisecond + rand.N(200*time.Millisecond)) // the load goes on
		k.kill(server)
		server = serve()
		c.post(t, watched) // waits until the server is there
	}
	load.end()
	if err := c.send(t.Context(), "POST", jobPath(watched)+"/cancel", nil, new(any)); err != nil {
		t.Fatal(err)
	}
	if err := watcher.Wait(); err != nil {
		t.Error(err)
	}
	if lines := strings.Count(seen.String(), "\n"); lines < kills+1 || !strings.Contains(seen.String(), fmt.Sprintf(`"seq":%d,`, lines)) {
		t.Errorf("the watcher has seen %d events:\n%s", lines, seen)
	}
	if err := waiter.Wait(); err == nil || !strings.Contains(waited.String(), "cancelled") {
		t.Errorf("who waited for the job was told: %v\n%s", err, waited)
	}
	load.check(t, 1)
	k.kill(server)
}

// beside starts a command against the server, and gives what it prints.
func (k *killable) beside(c *jobsClient, args ...string) (*exec.Cmd, *bytes.Buffer) {
	k.Helper()
	cmd := exec.Command(k.program, append(args, "--server", c.url)...)
	cmd.Env = append(os.Environ(), "EVALRUN_TOKEN="+c.token)
	out := &bytes.Buffer{}
	cmd.Stdout = out
	if err := cmd.Start(); err != nil {
		k.Fatal(err)
	}
	k.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd, out
}

// token makes a token for everything.
func (k *killable) token() string {
	k.Helper()
	cmd := exec.Command(k.program, "token", "new", "--name", "test", "--scope", "admin", "--json")
	cmd.Dir = k.dir
	cmd.Env = append(os.Environ(), "EVALRUN_STORE="+filepath.Join(k.dir, ".evalrun"))
	var out []byte
	if !testenv.Eventually(func() bool { // the server makes the store
		var err error
		out, err = cmd.Output()
		again := *cmd
		cmd = exec.Command(again.Path, again.Args[1:]...)
		cmd.Dir, cmd.Env = again.Dir, again.Env
		return err == nil
	}) {
		k.Fatal("there is no token")
	}
	var made struct{ Token string }
	if err := json.Unmarshal(out, &made); err != nil {
		k.Fatal(err)
	}
	return made.Token
}

// submit submits a job until that is acknowledged.
func (c *jobsClient) submit(t *testing.T, key string) string {
	var made struct{ ID string }
	body := map[string]any{"capability": "done", "submitted_by": "load", "submitted_payload": map[string]any{}}
	if err := c.send(t.Context(), "POST", "/jobs", body, &made, "Idempotency-Key", key); err != nil {
		t.Error(err)
	}
	return made.ID
}

// post posts an event until that is acknowledged; it may be there several times then.
func (c *jobsClient) post(t *testing.T, id string) (seq int64) {
	var posted struct{ Seq int64 }
	if err := c.send(t.Context(), "POST", jobPath(id)+"/events", map[string]string{"type": "tick"}, &posted); err != nil {
		t.Error(err)
	}
	return posted.Seq
}

// jobsLoad are clients that submit, post and cancel.
type jobsLoad struct {
	c       *jobsClient
	stop    chan struct{}
	clients sync.WaitGroup

	mu sync.Mutex
	// events are the numbers of the events that were acknowledged, of each acknowledged job.
	events    map[string][]int64
	cancelled map[string]bool
}

func newJobsLoad(t *testing.T, c *jobsClient) *jobsLoad {
	l := &jobsLoad{c: c, stop: make(chan struct{}), events: map[string][]int64{}, cancelled: map[string]bool{}}
	for client := range 4 {
		l.clients.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-l.stop:
					return
				default:
				}
				id := c.submit(t, fmt.Sprintf("%d-%d", client, n))
				seqs := []int64{c.post(t, id), c.post(t, id)}
				cancelled := n%3 == 0 && c.sendUnrepeated(t.Context(), jobPath(id)+"/cancel", nil, new(any)) == nil
				l.mu.Lock()
				l.events[id], l.cancelled[id] = seqs, cancelled
				l.mu.Unlock()
			}
		})
	}
	return l
}

// end ends the clients when what they have begun is acknowledged.
func (l *jobsLoad) end() {
	close(l.stop)
	l.clients.Wait()
}

// check looks for everything that was acknowledged. There are others jobs beside those of the load.
func (l *jobsLoad) check(t *testing.T, others int) {
	t.Helper()
	for id, seqs := range l.events {
		var log struct{ Events []struct{ Seq int64 } }
		if err := l.c.send(t.Context(), "GET", jobPath(id)+"/events", nil, &log); err != nil {
			t.Fatal(err)
		}
		for _, seq := range seqs {
			if !slices.ContainsFunc(log.Events, func(e struct{ Seq int64 }) bool { return e.Seq == seq }) {
				t.Errorf("job %s has lost event %d: %+v", id, seq, log)
			}
		}
		var j shownJob
		if err := l.c.send(t.Context(), "GET", jobPath(id), nil, &j); err != nil {
			t.Fatal(err)
		}
		if l.cancelled[id] && j.Status != "cancelled" {
			t.Errorf("job %s is %s, and its cancellation was acknowledged", id, j.Status)
		}
	}
	total, cursor := 0, ""
	for {
		var page struct {
			Jobs []json.RawMessage `json:"jobs"`
			Next string            `json:"next_cursor"`
		}
		if err := l.c.send(t.Context(), "GET", "/jobs?limit=200&cursor="+cursor, nil, &page); err != nil {
			t.Fatal(err)
		}
		total += len(page.Jobs)
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	if total != len(l.events)+others || len(l.events) < 4 {
		t.Errorf("there are %d jobs, and %d were submitted", total, len(l.events)+others)
	}
	t.Logf("%d jobs", total)
}
