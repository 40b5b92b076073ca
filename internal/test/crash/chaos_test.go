package crash

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/testenv"
)

// TestChaos runs a large set in several processes, which it kills and stops at random. Deliveries
// come early, twice, late and by key, and some of the processes that make them are killed too. A
// job service fails for a while. Some rollouts are poison. In the end every other rollout must be
// completed with the right answers, and every poison one faulted.
//
// EVALRUN_SEED, EVALRUN_CHAOS_ROLLOUTS and EVALRUN_CHAOS_KILLS change what it does. The seed makes
// the same plan and the same decisions; what the processes have come to when they are killed still
// depends on the machine.
func TestChaos(t *testing.T) {
	testenv.NeedLong(t)
	seed := uint64(number(t, "EVALRUN_SEED", int(rand.Uint32())))
	c := &chaos{
		scenario: emptyScenario(t, "failpoint"), seed: seed,
		rollouts: number(t, "EVALRUN_CHAOS_ROLLOUTS", 200), kills: number(t, "EVALRUN_CHAOS_KILLS", 60),
		accepted: map[string]int{},
	}
	t.Logf("EVALRUN_SEED=%d: %d rollouts, %d kills", seed, c.rollouts, c.kills)
	c.plan()

	// Deliveries that come before the run need a store, which the end of another run leaves.
	if code, out := c.evalrun("run", "-q", "--run-id", "before", "--eval-id", c.waitsForNothing, "--fail-on-error=100%", "--detach", "set.json"); code != 0 && code != 75 {
		t.Fatalf("run: exit code %d\n%s", code, out)
	}
	for _, key := range c.keys[:min(5, len(c.keys))] {
		c.deliver(key, nil)
	}
	stop := make(chan struct{})
	var workers, deliverers sync.WaitGroup
	for i := range 3 {
		r := c.random(fmt.Sprint("worker ", i))
		workers.Go(func() { c.work(r, stop) })
	}
	deliverers.Go(func() { c.deliverAll(c.random("deliverer"), stop) })
	c.disturb(c.random("killer"))
	// With few rollouts the service is asked so rarely that it would go on to refuse while finish
	// waits.
	c.calm.Store(true)
	close(stop)
	c.endAll()
	workers.Wait()
	deliverers.Wait()

	for _, key := range c.keys {
		c.deliver(key, nil) // nobody kills this one
	}
	c.finish(lease)
	for _, key := range c.keys[:min(5, len(c.keys))] {
		if out := c.deliver(key, nil); !strings.HasPrefix(out, "late") && !strings.HasPrefix(out, "duplicate") {
			t.Errorf("a delivery for %s after the end: %s", key, out)
		}
	}
	for _, wrong := range c.violations() {
		t.Error(wrong)
	}
	for key, n := range c.accepted {
		if n > 1 {
			t.Errorf("%d deliveries for %s were accepted", n, key)
		}
	}
	t.Logf("%d processes were killed, %d were stopped for a while; the service refused %d requests", c.killed, c.stopped, c.refused.Load())
}

// lease is short, so that a process which is stopped loses what it holds.
const lease = "EVALRUN_LEASE=900ms"

// number is the value of a variable of the environment.
func number(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// chaos is a scenario that is disturbed at random.
type chaos struct {
	*scenario
	seed            uint64
	rollouts, kills int
	// keys are those of the external jobs that somebody must deliver.
	keys []string
	// waitsForNothing is an evaluation without a job. A run of any other would take deliveries that
	// are meant for the large run.
	waitsForNothing string
	// refused counts the requests that the service answered with 503. It refuses none any more when
	// calm is set.
	refused         atomic.Int64
	calm            atomic.Bool
	killed, stopped int

	mu sync.Mutex
	// accepted counts the deliveries of each key that were accepted, running are the processes that
	// may be killed.
	accepted map[string]int
	running  []*exec.Cmd
}

// random is a source of its own for each part, so that the parts do not change each other's
// decisions.
func (c *chaos) random(part string) *rand.Rand {
	var n uint64
	for _, b := range []byte(part) {
		n = n*131 + uint64(b)
	}
	return rand.New(rand.NewPCG(c.seed, n))
}

// plan writes the eval set.
func (c *chaos) plan() {
	r := c.random("plan")
	self, err := os.Executable()
	if err != nil {
		c.t.Fatal(err)
	}
	c.service, c.results, c.total, c.faults = newJobService(c.t), 2, c.rollouts, map[string]string{}
	service := c.service.Config.Handler
	var requests atomic.Int64
	c.service.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if n := requests.Add(1); n > 20 && n <= 80 && !c.calm.Load() {
			c.refused.Add(1)
			http.Error(w, "not now", http.StatusServiceUnavailable)
			return
		}
		service.ServeHTTP(w, req)
	})
	var evaluations []map[string]any
	for i := range c.rollouts {
		in := agentInput{Key: fmt.Sprint("key-", i)}
		switch p := r.IntN(100); {
		case i%10 == 9:
			in.Poison = poisons[i/10%len(poisons)]
		case p < 35:
			c.waitsForNothing = fmt.Sprint("e", i)
		default:
			in.Process = []string{"Local", "Idempotent", "AtMostOnce", "Elsewhere", "Elsewhere"}[r.IntN(5)]
			in.Rounds = 1 + r.IntN(2)
		}
		id := fmt.Sprint("e", i)
		name := id + " " + in.Process
		if in.Poison != "" {
			name, c.faults[id] = id+" "+in.Poison, in.Poison
		}
		if in.Process == "Elsewhere" {
			for round := range in.Rounds {
				c.keys = append(c.keys, in.key(round))
			}
		}
		evaluations = append(evaluations, map[string]any{"id": id, "name": name, "inputs": in, "evaluationCriterias": map[string]any{
			"exact": map[string]any{"expectedOutput": map[string]any{"answers": in.Rounds, "segmentsCounted": true}}, "command": nil,
		}})
	}
	c.write("set.json", map[string]any{
		"version": "1.0", "id": "chaos", "name": "Chaos", "evaluations": evaluations,
		"agent": map[string]any{"type": "function", "command": []string{self, "agent"}},
		"jobs": map[string]any{
			"Local":      map[string]any{"source": "exec", "command": []string{self, "job"}, "env": map[string]string{"CRASHTEST_DIR": c.dir}},
			"Idempotent": c.service.job("/idempotent", map[string]any{"idempotencyHeader": "Idempotency-Key"}),
			"AtMostOnce": c.service.job("/plain", nil),
		},
		"evaluators": []any{
			map[string]any{"version": "1.0", "id": "exact", "evaluatorTypeId": "uipath-exact-match", "evaluatorConfig": map[string]any{"name": "exact"}},
			map[string]any{"id": "command", "type": "command", "command": []string{self, "evaluator"}},
		},
	})
}

// work starts one process after another, of the kinds that may work on a run at the same time.
func (c *chaos) work(r *rand.Rand, stop <-chan struct{}) {
	for {
		cmd := c.command(lease)
		switch r.IntN(4) {
		case 0:
			cmd.Args = []string{c.program, "executor", "-j", "4"}
		case 1:
			cmd.Args = []string{c.program, "executor", "--once", "-j", "4"}
		}
		c.mu.Lock()
		select {
		case <-stop: // asked under the lock, so that nothing is started after endAll
			c.mu.Unlock()
			return
		default:
		}
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		err := cmd.Start()
		c.running = append(c.running, cmd)
		c.mu.Unlock()
		if err != nil {
			c.t.Error(err)
			return
		}
		err = cmd.Wait()
		c.mu.Lock()
		c.running = slices.DeleteFunc(c.running, func(other *exec.Cmd) bool { return other == cmd })
		c.mu.Unlock()
		// 75: what is waited for is still open. 2: an executor that was faster than the run has
		// found no store.
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.Exited() && exit.ExitCode() != 75 && (exit.ExitCode() != 2 || !strings.Contains(out.String(), "there is no store")) {
			c.t.Errorf("%v ended with %d:\n%s", cmd.Args, exit.ExitCode(), out.String())
		}
	}
}

// disturb kills processes, and stops some for longer than their lease.
func (c *chaos) disturb(r *rand.Rand) {
	for c.killed < c.kills {
		// Moments of the processes' lives, not a wait for something.
		time.Sleep(time.Duration(100+r.IntN(600)) * time.Millisecond)
		c.mu.Lock()
		if len(c.running) > 0 {
			p := c.running[r.IntN(len(c.running))].Process
			if r.IntN(10) == 0 {
				c.stopped++
				_ = p.Signal(syscall.SIGSTOP)
				time.AfterFunc(1500*time.Millisecond, func() { _ = p.Signal(syscall.SIGCONT) })
			} else if p.Kill() == nil {
				c.killed++
			}
		}
		c.mu.Unlock()
	}
}

// endAll kills what runs; work starts nothing any more.
func (c *chaos) endAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, cmd := range c.running {
		_ = cmd.Process.Kill()
	}
}

// deliverAll delivers every key one to three times in random order, and kills a quarter of the
// processes that do.
func (c *chaos) deliverAll(r *rand.Rand, stop <-chan struct{}) {
	var all []string
	for _, key := range c.keys {
		for range 1 + r.IntN(3) {
			all = append(all, key)
		}
	}
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, key := range all {
		select {
		case <-stop:
			return
		default:
		}
		if r.IntN(4) == 0 {
			c.deliver(key, r)
		} else {
			c.deliver(key, nil)
		}
	}
}

// deliver hands in the result of the external job with the key, and returns what evalrun says. With
// r, the process is killed at some moment.
func (c *chaos) deliver(key string, r *rand.Rand) string {
	cmd := exec.Command(c.program, "deliver", "external/"+key, "--payload", "-")
	cmd.Dir, cmd.Stdin = c.dir, strings.NewReader(fmt.Sprintf(`{"key":%q}`, key))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		c.t.Error(err)
		return ""
	}
	if r != nil {
		killer := time.AfterFunc(time.Duration(r.IntN(100))*time.Millisecond, func() { _ = cmd.Process.Kill() })
		defer killer.Stop()
	}
	err := cmd.Wait()
	if strings.HasPrefix(out.String(), "accepted") {
		c.mu.Lock()
		c.accepted[key]++
		c.mu.Unlock()
	}
	if err != nil && r == nil {
		c.t.Errorf("deliver %s: %v\n%s", key, err, out.String())
	}
	return out.String()
}

// The kinds of poison.
const (
	poisonCrash   = "crash"   // the agent ends with a status other than 0
	poisonGarbage = "garbage" // it prints no JSON
	poisonOdd     = "odd"     // the id of its interrupt is too long
	poisonDeep    = "deep"    // it leaves folders that nest deeper than a path may be long, and suspends
)

var poisons = []string{poisonCrash, poisonGarbage, poisonOdd, poisonDeep}

// playPoison does what a poison agent does instead of its work.
func playPoison(kind, workspace string) error {
	switch kind {
	case poisonCrash:
		return errors.New("this agent always ends like this")
	case poisonGarbage:
		fmt.Println("{this is no JSON")
		return nil
	case poisonOdd:
		fmt.Printf(`{"__interrupt__":[{"id":%q,"value":1}]}`, strings.Repeat("i", 10_000))
		return nil
	}
	if err := os.Chdir(workspace); err != nil {
		return err
	}
	name := strings.Repeat("d", 200)
	for range 30 {
		if err := os.Mkdir(name, 0o700); err != nil {
			return err
		}
		if err := os.Chdir(name); err != nil {
			return err
		}
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{"__interrupt__": []any{map[string]any{"id": "deep", "value": map[string]any{"resume_time": "2026-01-01T00:00:00Z"}}}})
}

// checkFault says what is wrong with a rollout that must be faulted.
func (s *scenario) checkFault(o store.RolloutView, note func(string, ...any)) {
	if o.State != eval.StateFaulted || o.Fault == nil || o.Fault.Message == "" {
		note("rollout %s (%s) is %s, not faulted: %+v", o.ID, o.EvaluationName, o.State, o.Fault)
	}
	if files, _ := filepath.Glob(filepath.Join(s.dir, ".evalrun", "runs", runID, "rollouts", o.ID, "*")); len(files) == 0 && o.Segment > 0 {
		note("rollout %s (%s) has left nothing that says what it did", o.ID, o.EvaluationName)
	}
}
