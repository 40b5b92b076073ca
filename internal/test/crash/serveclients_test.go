package crash

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/testenv"
)

// event is what the callers of a server read of an event.
type event struct {
	Seq  int64
	Type string
	Data struct{ Triggers []struct{ TriggerID string } }
}

// stream calls f with the events of a run as they come, by server-sent events. When the stream
// breaks off it goes on after the last event that it has seen, and ends when the server says that
// there is none after that.
func (s *served) stream(runID string, f func(event)) {
	last := ""
	for deadline := time.Now().Add(testenv.Patience); time.Now().Before(deadline); {
		r, err := http.NewRequestWithContext(s.Context(), http.MethodGet, "http://"+s.address+"/v1/runs/"+runID+"/events", nil)
		if err != nil {
			s.Error(err)
			return
		}
		r.Header.Set("Authorization", "Bearer "+s.token)
		r.Header.Set("Accept", "text/event-stream")
		if last != "" {
			r.Header.Set("Last-Event-ID", last)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			time.Sleep(10 * time.Millisecond) // the server is being started
			continue
		}
		for lines := bufio.NewReader(resp.Body); ; {
			line, err := lines.ReadString('\n')
			if err != nil {
				break // what is cut off has not been seen
			}
			if text, ok := strings.CutPrefix(line, "data: "); ok {
				var e event
				if err := json.Unmarshal([]byte(text), &e); err != nil {
					s.Errorf("%v in %s", err, text)
					break
				}
				last = fmt.Sprint(e.Seq)
				f(e)
			}
		}
		_ = resp.Body.Close()
		s.count(&s.streams)
		if resp.StatusCode == http.StatusNoContent {
			return
		}
	}
	s.Errorf("the stream of run %s does not end; the last event is %q", runID, last)
}

func (s *served) count(n *int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*n++
}

// posters are jobs that answer by the webhook that they are given, each until it is told that its
// answer is there.
type posters struct {
	*httptest.Server
	s     *served
	posts sync.WaitGroup

	mu sync.Mutex
	// accepted counts the answers 202 by webhook.
	accepted map[string]int
}

func newPosters(s *served) *posters {
	p := &posters{s: s, accepted: map[string]int{}}
	p.Server = httptest.NewServer(p)
	s.Cleanup(p.Close)
	return p
}

// ServeHTTP starts a job, or says that it is running.
func (p *posters) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		var start struct{ ID, Hook string }
		if err := json.NewDecoder(r.Body).Decode(&start); err != nil || start.Hook == "" {
			p.s.Errorf("a job is started without a webhook: %v", err)
		}
		p.mu.Lock()
		_, again := p.accepted[start.Hook]
		p.accepted[start.Hook] += 0
		p.mu.Unlock()
		if !again { // a start that is repeated has the same key
			p.posts.Go(func() { p.post(start.ID, start.Hook) })
		}
	}
	_ = json.NewEncoder(w).Encode(map[string]string{"id": "job", "state": "running"})
}

// post posts an answer until it is a duplicate.
func (p *posters) post(triggerID, hook string) {
	for deadline := time.Now().Add(testenv.Patience); time.Now().Before(deadline); {
		status := 0
		if resp, err := http.Post(hook, "application/json", bytes.NewReader([]byte(`{"status": "done"}`))); err == nil {
			status = resp.StatusCode
			_ = resp.Body.Close()
		}
		switch status {
		case http.StatusAccepted:
			p.mu.Lock()
			p.accepted[hook]++
			p.mu.Unlock()
		case http.StatusOK:
			p.s.mu.Lock()
			p.s.delivered[triggerID] = true
			p.s.mu.Unlock()
			return
		case 0:
			time.Sleep(10 * time.Millisecond) // the server is being started
		default:
			p.s.Errorf("the webhook of trigger %s answers %d", triggerID, status)
			return
		}
	}
	p.s.Errorf("the answer to trigger %s could not be posted", triggerID)
}

// check waits until everything is posted, and makes sure that nothing was accepted twice.
func (p *posters) check() {
	p.s.Helper()
	p.posts.Wait()
	n := 0
	for _, accepted := range p.accepted {
		if n += accepted; accepted > 1 {
			p.s.Errorf("a webhook has accepted %d answers", accepted)
		}
	}
	p.s.Logf("%d webhooks, %d times 202", len(p.accepted), n)
}

// writeConfig writes a configuration with two eval sets: the jobs of "invoices" are answered by the
// caller, those of "posted" answer by webhook.
func (s *served) writeConfig() {
	s.Helper()
	fixture := filepath.Join(testenv.Top(s.T), "fixtures", "serve")
	var set map[string]any
	if err := json.Unmarshal([]byte(testenv.ReadFile(s.T, fixture, "evalsets", "invoices.json")), &set); err != nil {
		s.Fatal(err)
	}
	dir := s.TempDir()
	write := func(name string, v any) {
		data, err := json.Marshal(v)
		if err != nil {
			s.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			s.Fatal(err)
		}
	}
	testenv.Mkdir(s.T, dir, "sets")
	write("sets/invoices.json", set)
	set["jobs"] = map[string]any{"ReadInvoices": map[string]any{
		"source": "http", "itemKey": ".id", "idempotencyHeader": "Idempotency-Key", "interval": "1h", "maxInterval": "1h",
		"start":  map[string]any{"url": s.posters.URL, "body": map[string]any{"id": "{triggerId}", "hook": "{webhookUrl}"}},
		"status": map[string]any{"url": s.posters.URL + "/{itemKey}", "done": `.state == "done"`},
	}}
	write("sets/posted.json", set)
	s.config = filepath.Join(dir, "serve.yaml")
	write("serve.yaml", map[string]any{
		"agents":   []any{map[string]any{"type": "function", "name": "bookkeeper", "command": []string{"sh", filepath.Join(fixture, "agent.sh")}}},
		"evalSets": "sets", "jobs": map[string]any{"ReadInvoices": map[string]any{"source": "external"}},
	})
}
