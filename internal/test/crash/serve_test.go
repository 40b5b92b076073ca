package crash

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/testenv"
)

// served is evalrun serve, which is killed again and again while callers use it.
type served struct {
	*testing.T
	program, config, store, address, token string

	mu sync.Mutex
	// runs are the ids that were acknowledged, by idempotency key; delivered are triggers.
	runs      map[string]string
	delivered map[string]bool
	// streams counts the streams of events that have ended, by their end or by a kill.
	streams int
	posters *posters
}

// TestServeKilledUnderLoad kills the server while runs are started, watched by long polls and
// streams, and answered by callers and webhooks. Whatever it has acknowledged is there afterwards,
// every watcher sees every event once and in order, and every run comes to its end.
func TestServeKilledUnderLoad(t *testing.T) {
	testenv.NeedLong(t)
	s := newServed(t, "")
	stop := make(chan struct{})
	var callers sync.WaitGroup
	for i := range 4 {
		callers.Go(func() { s.call(i, stop) })
	}
	for range number(t, "EVALRUN_CRASH_KILLS", 50) {
		server := s.start()
		time.Sleep(time.Duration(100+rand.IntN(400)) * time.Millisecond) // that is the load
		if err := server.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = server.Wait() // it was killed
	}
	server := s.start()
	close(stop)
	callers.Wait()
	s.posters.check()
	s.check()
	if err := server.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := server.Wait(); err != nil {
		t.Errorf("the last server: %v", err)
	}
}

// newServed is one that has not been started, with a token.
func newServed(t *testing.T, tags string) *served {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &served{T: t, program: build(t, tags), store: filepath.Join(t.TempDir(), "store"),
		address: ln.Addr().String(), runs: map[string]string{}, delivered: map[string]bool{}}
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	s.posters = newPosters(s)
	s.writeConfig()
	out, err := exec.CommandContext(t.Context(), s.program, "token", "new", "--quiet", "--store", s.store, "--scope", "read,run,deliver").Output()
	if err != nil {
		t.Fatal(err)
	}
	s.token = strings.TrimSpace(string(out))
	return s
}

func (s *served) start(flags ...string) *exec.Cmd {
	s.Helper()
	return s.startWith(nil, flags...)
}

// startWith is start with further variables.
func (s *served) startWith(env []string, flags ...string) *exec.Cmd {
	s.Helper()
	cmd := exec.CommandContext(s.Context(), s.program, append([]string{"serve", "--quiet", "--store", s.store, "--config", s.config, "--listen", s.address}, flags...)...)
	cmd.Env = append(os.Environ(), env...)
	if err := cmd.Start(); err != nil {
		s.Fatal(err)
	}
	return cmd
}

// call is one caller: it starts a run, follows it and answers what it waits for, again and again.
// Every second caller leaves the answers to webhooks, and two of four watch by streams. What is not
// answered they ask again.
func (s *served) call(caller int, stop <-chan struct{}) {
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		default:
		}
		key := fmt.Sprintf("%d-%d", caller, n)
		var run struct{ RunID string }
		set := []string{"invoices", "posted"}[caller%2]
		s.again("POST", "/v1/runs", `{"evalSet": "`+set+`"}`, key, &run)
		s.mu.Lock()
		s.runs[key] = run.RunID
		s.mu.Unlock()
		follow := s.poll
		if caller >= 2 {
			follow = s.stream
		}
		var last event
		follow(run.RunID, func(e event) {
			if e.Seq != last.Seq+1 {
				s.Errorf("run %s: event %d after %d", run.RunID, e.Seq, last.Seq)
			}
			if last = e; set == "invoices" {
				s.answer(e)
			}
		})
		if last.Type != "run.finished" {
			s.Errorf("the last event of run %s is %+v", run.RunID, last)
		}
	}
}

// answer delivers what a run waits for since an event.
func (s *served) answer(e event) {
	for _, g := range e.Data.Triggers {
		var got struct{ Disposition string }
		s.again("POST", "/v1/triggers/"+g.TriggerID+"/deliver", `{"payload": {"status": "done"}}`, "", &got)
		s.mu.Lock()
		s.delivered[g.TriggerID] = got.Disposition == "accepted" || got.Disposition == "duplicate"
		s.mu.Unlock()
	}
}

// poll calls f with the events of a run as they come, by long polls.
func (s *served) poll(runID string, f func(event)) {
	for after := int64(0); ; {
		var page struct {
			Events []event
			Next   int64
			Final  bool
		}
		s.again("GET", fmt.Sprintf("/v1/runs/%s/events?wait=5&after=%d", runID, after), "", "", &page)
		for _, e := range page.Events {
			f(e)
		}
		after = page.Next
		if page.Final || s.Failed() {
			return
		}
	}
}

// again sends a request until it is answered.
func (s *served) again(method, path, body, key string, into any) {
	deadline := time.Now().Add(testenv.Patience)
	for {
		data, err := s.send(method, path, body, key)
		if err == nil {
			err = json.Unmarshal(data, into)
		}
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			s.Errorf("%s %s: %v", method, path, err)
			return
		}
		time.Sleep(10 * time.Millisecond) // the server is being started
	}
}

func (s *served) send(method, path, body, key string) ([]byte, error) {
	r, err := http.NewRequestWithContext(s.Context(), method, "http://"+s.address+path, bytes.NewReader([]byte(body)))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+s.token)
	r.Header.Set("Content-Type", "application/json")
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= 300 {
		err = fmt.Errorf("%d: %s", resp.StatusCode, data)
	}
	return data, err
}

// check compares what was acknowledged with what is there.
func (s *served) check() {
	s.Helper()
	for key, runID := range s.runs {
		var run struct{ Status string }
		s.again("GET", "/v1/runs/"+runID, "", "", &run)
		if run.Status != "successful" {
			s.Errorf("run %s of key %s is %q", runID, key, run.Status)
		}
	}
	for id, ok := range s.delivered {
		var trigger struct {
			Deliveries []struct{ Disposition string }
		}
		s.again("GET", "/v1/triggers/"+id, "", "", &trigger)
		accepted := 0
		for _, d := range trigger.Deliveries {
			if d.Disposition == "accepted" {
				accepted++
			}
		}
		if !ok || accepted != 1 {
			s.Errorf("trigger %s has %d accepted deliveries", id, accepted)
		}
	}
	var list struct{ Runs []struct{ RunID string } }
	s.again("GET", "/v1/runs?limit=1000", "", "", &list)
	if len(list.Runs) != len(s.runs) && len(list.Runs) < 1000 {
		s.Errorf("there are %d runs, %d were acknowledged", len(list.Runs), len(s.runs))
	}
	s.Logf("%d runs, %d deliveries, %d streams", len(s.runs), len(s.delivered), s.streams)
}
