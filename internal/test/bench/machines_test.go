package bench

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/postgres"
	"github.com/evalrun/evalrun/internal/store/rules"
	"github.com/evalrun/evalrun/internal/testenv"
)

// BenchmarkMachines has four workers on a store in PostgreSQL with 100,000 suspended rollouts, and reports what they
// take while nothing is due, over EVALRUN_IDLE_SECONDS (default 5, with -short 1); how long a page of triggers takes;
// how long it is from a delivery until a worker has claimed its rollout; and how long until 1,000 rollouts that were
// delivered to have been resumed. Those that are resumed were suspended by agents, which have left a file each.
func BenchmarkMachines(b *testing.B) {
	if _, err := os.Stat("/proc/self/status"); err != nil {
		b.Skip("reads /proc")
	}
	singly, atOnce := testenv.Size(200, 5), testenv.Size(1000, 20)
	for b.Loop() {
		m := newMachines(b)
		run := m.suspendByAgents(singly + atOnce)
		suspend(b, m.store, m.dir, testenv.Size(100_000, 500)-singly-atOnce, external)
		m.exec("VACUUM ANALYZE")
		m.exec("ALTER SYSTEM SET fsync = on") // as it is elsewhere
		m.exec("SELECT pg_reload_conf()")
		m.exec("CHECKPOINT")
		m.idle()
		m.pages()
		waiting := m.waiting(run)
		m.deliverSingly(run, waiting[:singly])
		m.deliverAtOnce(run, waiting[singly:])
	}
}

// machines are the processes of a store in PostgreSQL, each with its own folder, as on machines of their own.
type machines struct {
	*testing.B
	program, dir string
	server       *testenv.PostgresServer
	db           *pgx.Conn
	store        *rules.Store
}

func newMachines(b *testing.B) *machines {
	b.Helper()
	m := &machines{B: b, server: testenv.StartPostgres(b), dir: b.TempDir()}
	m.program = buildProgram(b)
	s, err := postgres.Open(m.server.URL, store.Options{Files: m.dir})
	m.must(err)
	b.Cleanup(func() { _ = s.Close() })
	m.store = s
	m.db, err = pgx.Connect(b.Context(), m.server.URL)
	m.must(err)
	b.Cleanup(func() { _ = m.db.Close(b.Context()) })
	return m
}

func (m *machines) must(err error) {
	m.Helper()
	if err != nil {
		m.Fatal(err)
	}
}

func (m *machines) exec(sql string) {
	m.Helper()
	_, err := m.db.Exec(m.Context(), sql)
	m.must(err)
}

// command is a process of evalrun on a machine of this name.
func (m *machines) command(machine string, args ...string) *exec.Cmd {
	cmd := exec.Command(m.program, args...)
	cmd.Dir = m.dir
	cmd.Env = append(os.Environ(), "EVALRUN_STORE="+m.server.URL, "EVALRUN_MACHINE="+machine,
		"XDG_STATE_HOME="+filepath.Join(m.dir, machine))
	return cmd
}

// start starts a process, which ends with the benchmark.
func (m *machines) start(cmd *exec.Cmd) {
	m.Helper()
	m.must(cmd.Start())
	m.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
}

// suspendByAgents has agents be suspended that ask a person and leave a file, and returns their run.
func (m *machines) suspendByAgents(rollouts int) (run string) {
	m.Helper()
	var evaluations []any
	for i := range rollouts {
		evaluations = append(evaluations, map[string]any{"id": fmt.Sprint("e", i), "name": fmt.Sprint("Evaluation ", i), "inputs": map[string]int{"x": i}, "evaluationCriterias": map[string]any{}})
	}
	set, err := json.Marshal(map[string]any{"version": "1.0", "id": "asks", "name": "Asks", "evaluations": evaluations, "agent": map[string]any{"type": "function", "command": []string{"sh", "-c",
		`[ -f "$EVALRUN_WORKSPACE/kept" ] && echo '{}' || { echo kept >"$EVALRUN_WORKSPACE/kept"; echo '{"__interrupt__": {"title": "Go on?"}}'; }`}}})
	m.must(err)
	m.must(os.WriteFile(filepath.Join(m.dir, "set.json"), set, 0o600))
	out, err := m.command("first", "run", "-q", "--run-id", "asks", "set.json").CombinedOutput()
	if code := err.(*exec.ExitError).ExitCode(); code != 75 { //nolint:errorlint,forcetypeassert // it has not ended with 0
		m.Fatalf("exit code %d: %s", code, out)
	}
	return "asks"
}

// idle starts four workers, and reports what they take when they have settled.
func (m *machines) idle() {
	m.Helper()
	var workers []*exec.Cmd
	for i := range 4 {
		cmd := m.command(fmt.Sprint("w", i+1), "worker", "-q", "-j", "8")
		m.start(cmd)
		workers = append(workers, cmd)
	}
	used := func() (total time.Duration) {
		for _, cmd := range workers {
			total += cpuTime(m.B, cmd.Process.Pid)
		}
		return total
	}
	time.Sleep(2 * time.Second)
	for range testenv.Size(150, 1) { // first they catch up with what has happened, which is not what is measured
		before := used()
		if time.Sleep(2 * time.Second); used()-before < 50*time.Millisecond {
			break
		}
	}
	before, window := used(), idleTime()
	time.Sleep(window)
	m.ReportMetric(100*(used()-before).Seconds()/window.Seconds(), "%CPU-of-four")
	rss, _ := memory(m.B, workers[0].Process.Pid)
	m.ReportMetric(rss, "MB-resident")
}

// pages reads all open triggers, a page of the usual size after the other, from a server, and then with the command.
func (m *machines) pages() {
	m.Helper()
	token, err := m.command("server", "token", "new", "--quiet", "--scope", "read").Output()
	m.must(err)
	cmd := m.command("server", "serve", "--no-executor", "--listen", "127.0.0.1:0")
	stderr, err := cmd.StderrPipe()
	m.must(err)
	m.start(cmd)
	var address string
	for lines := bufio.NewScanner(stderr); address == "" && lines.Scan(); {
		_, address, _ = strings.Cut(lines.Text(), "serving ")
	}
	address, _, _ = strings.Cut(address, " ")
	var longest time.Duration
	for cursor, first := "", true; first || cursor != ""; first = false {
		r, err := http.NewRequestWithContext(m.Context(), http.MethodGet, address+"/v1/triggers?limit=1000"+cursor, nil)
		m.must(err)
		r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
		since := time.Now()
		answer, err := http.DefaultClient.Do(r)
		m.must(err)
		var page struct {
			Triggers   []json.RawMessage
			NextCursor string
		}
		err = json.NewDecoder(answer.Body).Decode(&page)
		_ = answer.Body.Close()
		if longest = max(longest, time.Since(since)); err != nil || len(page.Triggers) == 0 && first {
			m.Fatal(answer.Status, err)
		}
		if cursor = page.NextCursor; cursor != "" {
			cursor = "&cursor=" + url.QueryEscape(cursor)
		}
	}
	m.ReportMetric(float64(longest.Milliseconds()), "ms-longest-page-of-1000")
	since := time.Now()
	_, err = m.command("server", "triggers", "--json").Output()
	m.must(err)
	m.ReportMetric(time.Since(since).Seconds(), "s-all-triggers")
}

// waiting returns the open triggers of a run.
func (m *machines) waiting(run string) (out []store.Trigger) {
	m.Helper()
	m.must(m.store.Triggers(m.Context(), run, false, func(t store.Trigger) error { out = append(out, t); return nil }))
	return out
}

func (m *machines) deliver(t store.Trigger) {
	m.Helper()
	receipt, err := m.store.Deliver(m.Context(), store.Delivery{TriggerID: t.ID, Status: store.StatusSuccessful, Payload: json.RawMessage(`{}`), By: "deliver"})
	if err != nil || receipt.Disposition != store.Accepted {
		m.Error(receipt.Disposition, err)
	}
}

// until waits until a condition on the rollouts of a run is true. The store tells of every commit.
func (m *machines) until(run, condition string, args ...any) {
	m.Helper()
	for is := false; !is; {
		changed := m.store.Changed(run)
		m.must(m.db.QueryRow(m.Context(), "SELECT "+condition, args...).Scan(&is))
		if !is {
			<-changed
		}
	}
}

// deliverSingly delivers to one rollout after the other, each when the one before has ended, and reports how long it
// was until its claim was committed.
func (m *machines) deliverSingly(run string, waiting []store.Trigger) {
	m.Helper()
	var took []time.Duration
	for _, t := range waiting {
		since := time.Now()
		m.deliver(t)
		m.until(run, "segment = 2 FROM evalrun.rollouts WHERE rollout_id = $1", t.RolloutID)
		took = append(took, time.Since(since))
		m.until(run, "finished_at IS NOT NULL FROM evalrun.rollouts WHERE rollout_id = $1", t.RolloutID)
	}
	slices.Sort(took)
	m.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms-delivery-to-claim-p50")
	m.ReportMetric(float64(took[len(took)*95/100].Microseconds())/1000, "ms-delivery-to-claim-p95")
}

// deliverAtOnce delivers to many, and reports how long it was until all were claimed, and until all had ended.
func (m *machines) deliverAtOnce(run string, waiting []store.Trigger) {
	m.Helper()
	since := time.Now()
	gate := make(chan struct{}, 32)
	for _, t := range waiting {
		gate <- struct{}{}
		go func() {
			m.deliver(t)
			<-gate
		}()
	}
	for range cap(gate) {
		gate <- struct{}{}
	}
	m.ReportMetric(time.Since(since).Seconds(), "s-delivered")
	m.until(run, "NOT EXISTS (SELECT 1 FROM evalrun.rollouts WHERE run_id = $1 AND segment < 2)", run)
	m.ReportMetric(time.Since(since).Seconds(), "s-resumed")
	m.until(run, "NOT EXISTS (SELECT 1 FROM evalrun.rollouts WHERE run_id = $1 AND finished_at IS NULL)", run)
	m.ReportMetric(time.Since(since).Seconds(), "s-ended")
}
