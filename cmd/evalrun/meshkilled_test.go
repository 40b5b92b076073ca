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
	"sync"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/peers/fakemesh"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/testenv"
)

// mesh is a registry that can be killed: its jobs are there when it is started again.
type mesh struct {
	*testing.T
	registry fakemesh.Registry
	address  string

	mu     sync.Mutex
	server *http.Server
}

func newMesh(t *testing.T) *mesh {
	m := &mesh{T: t, address: "127.0.0.1:0"}
	m.start()
	t.Cleanup(m.kill)
	return m
}

func (m *mesh) start() {
	m.Helper()
	ln, err := net.Listen("tcp", m.address)
	if err != nil {
		m.Fatal(err)
	}
	server := &http.Server{Handler: &m.registry, ReadHeaderTimeout: testenv.Patience}
	m.mu.Lock()
	m.address, m.server = ln.Addr().String(), server
	m.mu.Unlock()
	go func() { _ = server.Serve(ln) }() // until it is killed
}

// kill cuts all connections: what was just done is not answered.
func (m *mesh) kill() {
	m.mu.Lock()
	defer m.mu.Unlock()
	_ = m.server.Close()
}

// submit submits a job to a registry that is there.
func (m *mesh) submit(evalSet string) {
	m.Helper()
	body, err := json.Marshal(map[string]any{"capability": "run_eval", "submitted_by": "test", "submitted_payload": map[string]any{"evalSet": evalSet}, "max_retries": 1000})
	if err != nil {
		m.Fatal(err)
	}
	answer, err := http.Post("http://"+m.address+"/jobs", "application/json", bytes.NewReader(body))
	if err != nil {
		m.Fatal(err)
	}
	if _ = answer.Body.Close(); answer.StatusCode != http.StatusCreated {
		m.Fatal(answer.Status)
	}
}

// G22: a registry and a provider that are killed in turn, while jobs are claimed, run and ended, do
// each job once: one run, one end.
func TestAKilledMeshDoesEachJobOnce(t *testing.T) {
	testenv.NeedSlow(t)
	kills := 4
	if os.Getenv(testenv.Long) != "" {
		kills = 20
	}
	m := newMesh(t)
	k := newKillable(t, map[string]string{
		"serve.yaml": `agents:
  - {type: function, name: echo, command: [cat]}
  - {type: function, name: waits, command: [sh, waits.sh]}
evalSets: {echo: echo.json, waits: waits.json}
mesh: {registry: "http://` + m.address + `", capabilities: {run_eval: {}}}
`,
		"waits.sh":   `case $(cat) in *'"resume":null'*) echo '{"__interrupt__": [{"id": "q", "value": {"type": "WaitUntil", "resume_time": "2020-01-01T00:00:00Z"}}]}' ;; *) echo '{"content": 1}' ;; esac`,
		"echo.json":  `{"version": "1.0", "id": "echo", "name": "Echo", "agent": "echo", "evaluations": [{"id": "a", "name": "A", "inputs": {}, "evaluationCriterias": {}}]}`,
		"waits.json": `{"version": "1.0", "id": "waits", "name": "Waits", "agent": "waits", "evaluations": [{"id": "a", "name": "A", "inputs": {}, "evaluationCriterias": {}}]}`,
	})
	provide := func() *exec.Cmd {
		return k.start("serve", "--config", "serve.yaml", "--listen", "127.0.0.1:0")
	}
	provider := provide()
	for n := range kills {
		m.submit([]string{"echo", "waits"}[n%2])
		m.submit("echo")
		time.Sleep(rand.N(1500 * time.Millisecond)) // anywhere in what is done meanwhile
		m.kill()
		time.Sleep(rand.N(100 * time.Millisecond))
		m.start()
		if n%2 == 0 {
			m.registry.Sweep(time.Now().Add(time.Hour)) // as if it had been away for long
		}
		time.Sleep(rand.N(1500 * time.Millisecond))
		k.kill(provider)
		provider = provide()
	}
	ended := map[string]int{}
	if !testenv.Eventually(func() bool {
		clear(ended)
		for _, j := range m.registry.Jobs() {
			ended[j.Status]++
		}
		return ended["completed"] == 2*kills
	}) {
		t.Fatalf("of %d jobs are %v\n%s", 2*kills, ended, testenv.ReadFile(t, k.dir, "output"))
	}
	k.kill(provider)
	runs := map[string]bool{}
	for _, j := range m.registry.Jobs() {
		var result struct{ RunID, Status string }
		if err := json.Unmarshal(j.Result, &result); err != nil || result.Status != "successful" || runs[result.RunID] {
			t.Errorf("job %s is done by run %q, which is %s: %v", j.ID, result.RunID, result.Status, err)
		}
		runs[result.RunID] = true
		finished := 0
		for _, e := range j.Events {
			if e.Type == "run.finished" {
				finished++
			}
		}
		if finished != 1 {
			t.Errorf("job %s has finished %d times", j.ID, finished)
		}
	}
	stored, err := k.open().Internal().ListRuns(t.Context(), store.RunQuery{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	if len(stored) != 2*kills || len(runs) != 2*kills {
		t.Errorf("%s", fmt.Sprintf("%d jobs are %d runs, of which %d have done one", 2*kills, len(stored), len(runs)))
	}
}
