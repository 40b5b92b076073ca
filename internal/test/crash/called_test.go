package crash

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/evalrun/evalrun/fixtures/mcp/jobs/service"
	"github.com/evalrun/evalrun/internal/sandbox"
	"github.com/evalrun/evalrun/internal/testenv"
)

// calledJobs are a job service with two MCP servers that start its jobs: dedup passes on the key of
// idempotence, plain knows nothing of it.
type calledJobs struct {
	dir string
	// calls is how many jobs agents start through each of them.
	calls map[string]int
}

// jobsServer builds the MCP server of the fixtures once.
var jobsServer = fixture("mcp/jobs")

// newCallingScenario makes a scenario of ACP agents that start jobs by calling tools, through the
// MCP gateway.
func newCallingScenario(t *testing.T) *scenario {
	t.Helper()
	s := emptyScenario(t, "failpoint")
	s.flags = []string{"--isolation", sandbox.IsolationProcess, "--mcp-config", "mcp.json"}
	agent, err := acpAgent()
	if err != nil {
		t.Fatal(err)
	}
	s.called = &calledJobs{dir: t.TempDir(), calls: map[string]int{}}
	jobs, err := service.New(service.Options{Dir: s.called.dir})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(jobs)
	t.Cleanup(server.Close)
	s.write("mcp.json", map[string]any{"mcpServers": map[string]any{
		"dedup": map[string]any{"type": "http", "url": startCalledServer(t, server.URL)},
		"plain": map[string]any{"type": "http", "url": startCalledServer(t, server.URL, "--no-idempotency")},
	}})
	var evaluations []any
	add := func(name, server, prompt string, calls int) {
		s.called.calls[server] += calls
		evaluations = append(evaluations, map[string]any{"id": name, "name": name, "inputs": map[string]any{"prompt": prompt}, "evaluationCriterias": map[string]any{"says": map[string]any{"searchText": "INV-"}}})
	}
	call := func(server string, n, ms int) string {
		return fmt.Sprintf(`[[CALL %s.run_process {"process":"invoice","arguments":{"n":%d,"ms":%d}}]]`, server, n, ms)
	}
	add("long", "dedup", call("dedup", 1, 500), 1)
	add("short", "dedup", call("dedup", 2, 1), 1)
	add("two", "dedup", call("dedup", 3, 400)+call("dedup", 4, 600), 2)
	add("long AtMostOnce", "plain", call("plain", 5, 500), 1)
	add("short AtMostOnce", "plain", call("plain", 6, 1), 1)
	s.total, s.results = len(evaluations), 1
	s.write("set.json", map[string]any{
		"version": "1.0", "id": "crash", "name": "Crash", "evaluations": evaluations,
		"agent":      map[string]any{"type": "acp", "name": "calls", "command": []string{agent}},
		"jobs":       map[string]any{"*": map[string]any{"source": "uipath", "url": server.URL, "token": "${JOBS_TOKEN}", "interval": "50ms", "maxInterval": "100ms"}},
		"limits":     map[string]any{"softWait": "100ms"},
		"evaluators": []any{map[string]any{"version": "1.0", "id": "says", "evaluatorTypeId": "uipath-contains", "evaluatorConfig": map[string]any{"name": "says"}}},
	})
	return s
}

// startCalledServer starts an MCP server of the job service, and returns its URL.
func startCalledServer(t *testing.T, serviceURL string, flags ...string) string {
	t.Helper()
	program, err := jobsServer()
	if err != nil {
		t.Fatal(err)
	}
	portFile := filepath.Join(t.TempDir(), "port")
	cmd := exec.Command(program, append([]string{"server", "--service", serviceURL, "--listen", "127.0.0.1:0", "--port-file", portFile}, flags...)...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	return "http://127.0.0.1:" + testenv.WhenWritten(t, portFile) + "/mcp"
}

// checkCalled counts the jobs that calls have started: never more than there were calls, and never
// fewer where nothing may end as start-unknown.
func (s *scenario) checkCalled(note func(string, ...any)) {
	starts, err := service.ReadStarts(s.called.dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		s.t.Fatal(err)
	}
	started := map[string]int{}
	for _, start := range starts {
		switch {
		case start.IdempotencyKey == "":
			started["plain"]++
		case start.New:
			started["dedup"]++
		}
	}
	for name, want := range s.called.calls {
		if n := started[name]; n > want || name == "dedup" && n < want {
			note("%d jobs were started through %s by %d calls", n, name, want)
		}
	}
}
