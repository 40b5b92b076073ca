package crash

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/testenv"
	"github.com/evalrun/evalrun/runner"
)

// fleet is a scenario on several machines: PostgreSQL, a job service and workers, each in a network
// namespace of its own. Workers have their own processes and folders, too.
type fleet struct {
	*scenario
	network *network
	server  *testenv.PostgresServer
	db      *pgx.Conn
	workers []*worker
	// lease is how long leases are, and takeover the longest time until others had what a worker held.
	lease    time.Duration
	takeover time.Duration
	// taken counts what was taken over, jobs is how many may be done.
	taken, jobs int
}

// longestTakeover is how long it may take until others have what a worker held that is gone.
const longestTakeover = time.Minute

func newFleet(t *testing.T, tags string, lease time.Duration) *fleet {
	n := newNetwork(t)
	f := &fleet{scenario: emptyScenario(t, tags), network: n, lease: lease}
	pg := n.add("pg")
	f.server = testenv.StartPostgresIn(t, pg.addr+"/24", func(cmd *exec.Cmd) error { return pg.in(cmd.Start) })
	f.store, f.results = f.server.Local, 2
	f.service = serveJobs(t, n.add("jobs").listen())
	t.Setenv("XDG_STATE_HOME", filepath.Join(f.dir, "state"))
	f.make()
	db, err := pgx.Connect(t.Context(), f.server.Local)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close(t.Context()) })
	f.db = db
	return f
}

// plan makes a run of one evaluation for each input, which nobody works on yet.
func (f *fleet) plan(id string, inputs []agentInput) {
	f.t.Helper()
	self, err := os.Executable()
	if err != nil {
		f.t.Fatal(err)
	}
	var evaluations []map[string]any
	for i, in := range inputs {
		evaluations = append(evaluations, map[string]any{"id": fmt.Sprint("e", i), "name": fmt.Sprint("e", i, " ", in.Process), "inputs": in,
			"evaluationCriterias": map[string]any{"exact": map[string]any{"expectedOutput": map[string]any{"answers": in.Rounds, "segmentsCounted": true}}, "command": nil}})
	}
	name := id + ".json"
	f.write(name, map[string]any{"version": "1.0", "id": "machines", "name": "Machines", "evaluations": evaluations,
		"agent": map[string]any{"type": "function", "command": []string{self, "agent"}},
		"jobs": map[string]any{
			"Idempotent": f.service.job("/idempotent", map[string]any{"idempotencyHeader": "Idempotency-Key"}),
			"AtMostOnce": f.service.job("/plain", nil),
		},
		"evaluators": []any{map[string]any{"version": "1.0", "id": "exact", "evaluatorTypeId": "uipath-exact-match", "evaluatorConfig": map[string]any{"name": "exact"}},
			map[string]any{"id": "command", "type": "command", "command": []string{self, "evaluator"}}}})
	s, err := runner.Open(f.store, runner.OpenOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	defer s.Close()
	set, err := runner.Load([]string{filepath.Join(f.dir, name)}, runner.LoadOptions{})
	if err == nil {
		_, err = s.Create(f.t.Context(), set, runner.CreateOptions{RunID: id})
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

// worker is a process of evalrun on a machine of its own.
type worker struct {
	*host
	f *fleet
	*background
	// earlier are those that were killed.
	earlier []*background
}

func (f *fleet) worker(name string) *worker {
	f.t.Helper()
	w := &worker{host: f.network.add(name), f: f}
	f.workers = append(f.workers, w)
	w.start()
	return w
}

// start starts the process, the first in its own namespace of processes: it dies with all of its agents,
// and nobody else sees them.
func (w *worker) start() {
	w.f.t.Helper()
	b := &background{cmd: exec.Command("sh", "-c", `mount -t proc proc /proc && exec "$0" "$@"`, w.f.program, "worker", "-j", "2", "-q")}
	b.cmd.Dir = w.f.dir
	b.cmd.Env = append(w.f.command().Env, "XDG_STATE_HOME="+filepath.Join(w.f.dir, w.name), "EVALRUN_MACHINE="+w.name,
		"EVALRUN_STORE="+w.f.server.URL, "EVALRUN_LEASE="+w.f.lease.String())
	b.cmd.Stdout, b.cmd.Stderr = &b.out, &b.out
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID, Unshareflags: unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	w.f.network.must(w.in(b.cmd.Start))
	w.f.t.Cleanup(func() {
		_ = b.cmd.Process.Kill()
		_ = b.cmd.Wait()
	})
	w.background = b
}

// space is the namespace of the worker's processes, by which the store knows it.
func (w *worker) space() string {
	space, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", w.cmd.Process.Pid)) // it ends with the process
	return space
}

// query returns a column of texts.
func (f *fleet) query(sql string, args ...any) []string {
	f.t.Helper()
	rows, _ := f.db.Query(f.t.Context(), sql, args...) // its error is that of the rows
	out, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		f.t.Fatal(err)
	}
	return out
}

// holding lists the claims that the process in a namespace holds: ids and fences.
func (f *fleet) holding(space, more string) []string {
	f.t.Helper()
	return f.query("SELECT rollout_id || ' ' || fence FROM evalrun.rollouts WHERE owner IN (SELECT holder_id FROM evalrun.holders WHERE pid_ns = $1)"+more, space)
}

// The kinds of what is done to a worker.
const (
	isKilled  = "killed"
	isStopped = "stopped"
	isCutOff  = "cut off"
)

// loss is what a worker held when something was done to it.
type loss struct {
	kind string
	at   *worker
	// space is the namespace of the process, held are its claims.
	space string
	held  []string
	since time.Time
}

// hit does something to the first of some workers that has a rollout in a state: its agent runs, or its evaluators do.
func (f *fleet) hit(kind string, state eval.State, workers ...*worker) *loss {
	f.t.Helper()
	holds := func(w *worker) bool { return len(f.holding(w.space(), " AND state = '"+string(state)+"'")) > 0 }
	var w *worker
	f.eventually(fmt.Sprint(workers[0].name, " has something ", state), func() bool {
		for _, w = range workers {
			if !holds(w) {
				continue
			}
			f.network.must(w.cmd.Process.Signal(syscall.SIGSTOP))
			if holds(w) {
				return true
			}
			f.network.must(w.cmd.Process.Signal(syscall.SIGCONT))
		}
		f.jobs++ // others have got what there was
		f.service.let(f.jobs)
		return false
	})
	l := &loss{kind: kind, at: w, space: w.space()}
	switch kind {
	case isKilled:
		f.network.must(w.cmd.Process.Kill())
		_ = w.cmd.Wait() // it was killed
	case isCutOff:
		w.cut()
		f.network.must(w.cmd.Process.Signal(syscall.SIGCONT))
	}
	l.since, l.held = time.Now(), f.holding(l.space, "")
	return l
}

// isOver reports whether others have everything that the worker held.
func (f *fleet) isOver(l *loss) bool {
	return !slices.ContainsFunc(f.holding(l.space, ""), func(c string) bool { return slices.Contains(l.held, c) })
}

// undo waits until others have what the worker held, and lets it go on.
func (f *fleet) undo(l *loss) {
	f.t.Helper()
	f.eventually("others have what "+l.at.name+" held", func() bool { return f.isOver(l) })
	f.taken, f.takeover = f.taken+len(l.held), max(f.takeover, time.Since(l.since))
	switch l.kind {
	case isKilled:
		l.at.earlier = append(l.at.earlier, l.at.background)
		l.at.start()
	case isStopped:
		f.network.must(l.at.cmd.Process.Signal(syscall.SIGCONT))
	case isCutOff:
		l.at.heal()
	}
}

// eventually waits until something is so, some minutes at most.
func (f *fleet) eventually(what string, is func() bool) {
	f.t.Helper()
	for range 5 {
		if testenv.Eventually(is) {
			return
		}
	}
	for _, w := range f.workers {
		f.t.Logf("%s:\n%s", w.name, w.out.String())
	}
	f.t.Fatalf("it did not come to this: %s\n%s", what, strings.Join(f.query(`SELECT rollout_id || ' ' || evaluation_name || ' ' || state || ' ' ||
		coalesce(owner, '') || ' ' || coalesce(runnable_at, 0) FROM evalrun.rollouts WHERE finished_at IS NULL`), "\n"))
}

// TestMachines runs workers on machines of their own, which are killed, stopped for longer than their
// leases, and cut off, while rollouts suspend and go on, and in the third and fourth round while evaluators
// run. No rollout is lost, none finishes twice, and no job is started twice. What comes late is refused.
//
// EVALRUN_SEED, EVALRUN_MACHINES_ROLLOUTS, EVALRUN_MACHINES_ROUNDS and EVALRUN_MACHINES_LEASE (in
// seconds) change what it does. With EVALRUN_LONG=1 there are 1,000 rollouts and leases of 30 s.
func TestMachines(t *testing.T) {
	testenv.PostgresURL(t)
	rollouts, rounds, lease := 50, 2, 4
	if os.Getenv(testenv.Long) != "" {
		rollouts, rounds, lease = 1000, 6, 30
	}
	rollouts, rounds = number(t, "EVALRUN_MACHINES_ROLLOUTS", rollouts), number(t, "EVALRUN_MACHINES_ROUNDS", rounds)
	seed := number(t, "EVALRUN_SEED", int(rand.Uint32()))
	f := newFleet(t, "failpoint", time.Duration(number(t, "EVALRUN_MACHINES_LEASE", lease))*time.Second)
	t.Logf("EVALRUN_SEED=%d: %d rollouts, %d rounds, leases of %v", seed, rollouts, rounds, f.lease)
	r := rand.New(rand.NewPCG(uint64(seed), 0)) //nolint:gosec // it is to be repeated
	inputs := make([]agentInput, rollouts)
	for i := range inputs {
		inputs[i] = [...]agentInput{{}, {Process: "Idempotent", Rounds: 1}, {Process: "Idempotent", Rounds: 2},
			{Process: "AtMostOnce", Rounds: 1}}[r.IntN(4)]
		inputs[i].Millis = 200 + r.IntN(200)
	}
	f.service.let(-1)
	f.total = rollouts
	f.plan(runID, inputs)
	for i := range 4 {
		f.worker(fmt.Sprint("w", i+1))
	}
	for round := range rounds {
		workers := slices.Clone(f.workers)
		r.Shuffle(len(workers), func(i, j int) { workers[i], workers[j] = workers[j], workers[i] })
		f.jobs = rollouts * (round + 1) / (rounds + 2) // so that there is something to resume
		f.service.let(f.jobs)
		state := [...]eval.State{eval.StateRunning, eval.StateEvaluating}[round/2%2]
		first := f.hit(isKilled, state, workers...)
		workers = slices.DeleteFunc(workers, func(w *worker) bool { return w == first.at })
		second := f.hit([...]string{isStopped, isCutOff}[round%2], state, workers...)
		f.undo(first)
		f.undo(second)
	}
	f.service.let(0)
	f.eventually("all ends", func() bool {
		return len(f.query("SELECT rollout_id FROM evalrun.rollouts WHERE finished_at IS NULL")) == 0
	})
	refused := 0
	for _, w := range f.workers {
		refused += w.end()
	}
	for _, wrong := range f.wrong() {
		t.Error(wrong)
	}
	if refused == 0 {
		t.Error("nothing that came late was refused: the suite does not see it")
	}
	if f.takeover > longestTakeover {
		t.Errorf("others had what a worker held only after %v", f.takeover)
	}
	again, segments := f.begunAgain()
	t.Logf("%d segments, %d of them begun again; %d rollouts were taken over, at the latest after %v; %d late commits were refused; %d jobs, started twice: %d",
		segments, again, f.taken, f.takeover.Round(time.Millisecond), refused, f.service.begunJobs(), len(f.service.startedTwice()))
}

// TestTakeoverIsNeeded builds evalrun without the claims of what a process held whose lease has run out. The
// suite must notice.
func TestTakeoverIsNeeded(t *testing.T) {
	testenv.NeedLong(t)
	testenv.PostgresURL(t)
	f := newFleet(t, "failpoint nolapse", 2*time.Second)
	f.plan(runID, slices.Repeat([]agentInput{{Millis: 300}}, 12))
	gone, stays := f.worker("w1"), f.worker("w2")
	lost := f.hit(isKilled, eval.StateRunning, gone)
	f.eventually(stays.name+" does the rest", func() bool {
		return len(f.query("SELECT rollout_id FROM evalrun.rollouts WHERE finished_at IS NULL")) == len(lost.held)
	})
	since := time.Now()
	if testenv.Eventually(func() bool { return f.isOver(lost) || time.Since(since) > 4*f.lease }) && f.isOver(lost) {
		t.Error("what a dead worker held should have stayed with it, and did not: the suite cannot see it")
	}
	stays.end()
}

// TestTokensAreNeeded lets the specification of the store judge one in which a process renews whatever the
// store says that it holds, and knows of no claim whose answer was lost. It must notice.
func TestTokensAreNeeded(t *testing.T) {
	testenv.NeedLong(t)
	cmd := exec.Command("go", "test", "-count=1", "-tags", "notoken", "-run", "TestConformance/leases", "github.com/evalrun/evalrun/internal/store/sqlite")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "--- FAIL: TestConformance/leases") {
		t.Errorf("the specification does not see it: %v\n%s", err, out)
	}
}

// end ends the worker, and returns how often it was refused something.
func (w *worker) end() (refused int) {
	w.f.t.Helper()
	if err := w.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		w.f.t.Errorf("%s has ended: %v\n%s", w.name, err, w.out.String())
	} else if err := w.cmd.Wait(); err != nil {
		w.f.t.Errorf("%s: %v\n%s", w.name, err, w.out.String())
	}
	for _, b := range append(w.earlier, w.background) {
		refused += b.refused()
	}
	return refused
}

// wrong says what is wrong with the run when it has ended.
func (f *fleet) wrong() (wrong []string) {
	f.t.Helper()
	note := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	st := f.open()
	defer st.Close()
	err := st.Snapshot(f.t.Context(), runID, func(v store.View) error {
		if run := v.Run(); !run.Final() || run.Counts.Total != f.total {
			note("the run is not final or has lost rollouts: %+v", run)
		}
		return v.Rollouts(func(o store.RolloutView) error {
			f.checkRollout(o, note)
			return nil
		})
	})
	if err != nil {
		f.t.Fatal(err)
	}
	events, err := st.Events(f.t.Context(), runID, 0, 1_000_000)
	if err != nil {
		f.t.Fatal(err)
	}
	checkEvents(events, f.total, note)
	f.checkJobs(note)
	return wrong
}
