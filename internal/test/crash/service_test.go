package crash

import (
	"encoding/json"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/evalrun/evalrun/internal/peers/fakemesh"
)

// jobService is a job service that outlives every evalrun. It knows the three kinds of start: it
// drops a second start with the same Idempotency-Key, lists its jobs by key, or does neither. It is
// a registry of MCP Mesh, too.
type jobService struct {
	*httptest.Server
	mu sync.Mutex
	// started counts the jobs that were really started for each trigger; asked how often a job was
	// asked for.
	started map[string]int
	asked   map[string]int
	mesh    fakemesh.Registry
	// told counts the notifications by their id.
	told map[string]int
	// begun, if it is not nil, is told of the first start of each job.
	begun chan struct{}
	// done are the jobs that are done, and most is how many may be; 0 is any number.
	done map[string]bool
	most int
	// slow says that it takes its time.
	slow atomic.Bool
}

func newJobService(t *testing.T) *jobService {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return serveJobs(t, l)
}

// serveJobs makes a service that listens somewhere.
func serveJobs(t *testing.T, l net.Listener) *jobService {
	s := &jobService{started: map[string]int{}, asked: map[string]int{}, told: map[string]int{}, done: map[string]bool{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /idempotent", func(w http.ResponseWriter, r *http.Request) { s.start(w, r, true) })
	mux.HandleFunc("POST /plain", func(w http.ResponseWriter, r *http.Request) { s.start(w, r, false) })
	mux.HandleFunc("GET /jobs/{key}", s.status)
	mux.HandleFunc("GET /find/{key}", s.find)
	mux.Handle("/mesh/", http.StripPrefix("/mesh", &s.mesh))
	mux.HandleFunc("GET /mesh/jobs/{id}", s.meshStatus)
	mux.HandleFunc("POST /told", s.tell)
	s.Server = &httptest.Server{Listener: l, Config: &http.Server{}}
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.slow.Load() {
			delay()
			defer delay() // what was written is sent after it
		}
		mux.ServeHTTP(w, r)
	})
	s.Start()
	t.Cleanup(s.Close)
	return s
}

// job is the entry of an eval set for the service's jobs that are started at path. more has further
// keys of it.
func (s *jobService) job(path string, more map[string]any) map[string]any {
	job := map[string]any{
		"source": "http", "start": map[string]any{"url": s.URL + path}, "itemKey": ".id", "interval": "20ms", "maxInterval": "100ms",
		"status": map[string]any{"url": s.URL + "/jobs/{itemKey}", "done": `.state == "done"`}, "value": ".value",
	}
	maps.Copy(job, more)
	return job
}

func (s *jobService) start(w http.ResponseWriter, r *http.Request, dedup bool) {
	var in struct {
		Key string `json:"key"`
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started[in.Key] == 0 && s.begun != nil {
		s.begun <- struct{}{}
	}
	if !dedup || s.started[in.Key] == 0 {
		s.started[in.Key]++
	}
	_ = json.NewEncoder(w).Encode(map[string]string{"id": in.Key})
}

// status is "running" the first time and "done" from then on, unless as many are done as may be.
func (s *jobService) status(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := r.PathValue("key")
	s.asked[key]++
	state := "running"
	if s.done[key] || s.asked[key] > 1 && (s.most == 0 || len(s.done) < s.most) {
		state, s.done[key] = "done", true
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"state": state, "value": map[string]string{"job": "done"}})
}

// meshStatus is "working" the first time and "completed" from then on, of some jobs when they have
// been answered.
func (s *jobService) meshStatus(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	s.mu.Lock()
	s.asked[id]++
	if s.asked[id] > 1 {
		s.mesh.Change(id, func(j *fakemesh.Job) {
			if j.Capability == asksProcess {
				ask(j)
				return
			}
			j.Status, j.Result = "completed", json.RawMessage(`{"job":"done"}`)
		})
	}
	s.mu.Unlock()
	http.StripPrefix("/mesh", &s.mesh).ServeHTTP(w, r)
}

func (s *jobService) find(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var id any
	if s.started[r.PathValue("key")] > 0 {
		id = r.PathValue("key")
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"id": id})
}

// let says how many jobs may be done, 0 for any number, and begunJobs how many were started.
func (s *jobService) let(most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.most = most
}

func (s *jobService) begunJobs() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.started)
}

// startedTwice lists the triggers whose job was started more than once.
func (s *jobService) startedTwice() (keys []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	submitted := map[string]int{}
	for _, j := range s.mesh.Jobs() {
		submitted[j.SubmittedBy]++
	}
	for key, n := range submitted {
		if n > 1 {
			keys = append(keys, key)
		}
	}
	for key, n := range s.started {
		if n > 1 {
			keys = append(keys, key)
		}
	}
	return keys
}
