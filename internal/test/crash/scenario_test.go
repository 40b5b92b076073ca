package crash

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/backend"
	"github.com/evalrun/evalrun/internal/store/rules"
)

// runID is the id of a scenario's run, if it does not say otherwise.
const runID = "01980000-0000-7000-8000-000000000001"

// scenario is one eval set in a folder of its own, which several evalrun processes work on.
type scenario struct {
	t       *testing.T
	program string
	dir     string
	service *jobService
	// run is the id of its run.
	run   string
	total int
	// results is how many each rollout has, asks that the agents are those that ask for permission.
	results int
	asks    bool
	// called is set where agents start jobs by calling tools.
	called *calledJobs
	// scored is set where evaluators wait; kills is how many processes are killed then.
	scored bool
	kills  int
	// notifies is set where the eval set names the service, which is then told of events.
	notifies bool
	// faults are the evaluations whose rollouts must end faulted.
	faults map[string]string
	// flags are further ones of its command, environ further variables.
	flags, environ []string
	// noFault is set where not even start-unknown may come of what is done to the processes.
	noFault bool
	// judged is set where judges are asked, and score is the score of each rollout then.
	judged bool
	score  float64
	// forgets says that the folder of each process is lost, but for the store.
	forgets bool
	// store is what the store is called, if it is not in the folder.
	store string
}

// open opens the store of the scenario.
func (s *scenario) open() *rules.Store {
	s.t.Helper()
	st, err := backend.Open(cmp.Or(s.store, filepath.Join(s.dir, ".evalrun")),
		store.Options{MustExist: true, Files: s.files()})
	if err != nil {
		s.t.Fatal(err)
	}
	return st
}

// files is the folder of the files of stores that are no folder.
func (s *scenario) files() string { return filepath.Join(s.dir, "state", "evalrun", "stores") }

// programs are built once for each set of build tags.
var programs sync.Map

func build(t *testing.T, tags string) string {
	t.Helper()
	once, _ := programs.LoadOrStore(tags, sync.OnceValues(func() (string, error) {
		dir, err := os.MkdirTemp("", "evalrun-crash")
		if err != nil {
			return "", err
		}
		program := filepath.Join(dir, "evalrun")
		out, err := exec.Command("go", "build", "-tags", tags, "-o", program, "github.com/evalrun/evalrun/cmd/evalrun").CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("%w\n%s", err, out)
		}
		return program, nil
	}))
	program, err := once.(func() (string, error))()
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// emptyScenario makes one without an eval set.
func emptyScenario(t *testing.T, tags string) *scenario {
	t.Helper()
	dir, err := os.MkdirTemp("", "evalrun-crash")
	if err != nil {
		t.Fatal(err)
	}
	// Not t.TempDir: a local job may outlive everything else and still write its result.
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return &scenario{t: t, program: build(t, tags), dir: dir, run: runID}
}

// newScenario makes a scenario. Evaluations whose agent waits for one of the processes without are
// left out.
func newScenario(t *testing.T, tags string, without ...string) *scenario {
	t.Helper()
	return newLargeScenario(t, tags, 1, without...)
}

// newLargeScenario makes a scenario with so many times more evaluations.
func newLargeScenario(t *testing.T, tags string, times int, without ...string) *scenario {
	t.Helper()
	s := emptyScenario(t, tags)
	s.service, s.results = newJobService(t), 2
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	evaluations := []map[string]any{}
	add := func(n int, in agentInput) {
		if slices.Contains(without, in.Process) {
			return
		}
		for range n * times {
			id := fmt.Sprintf("e%d", len(evaluations))
			evaluations = append(evaluations, map[string]any{"id": id, "name": id + " " + in.Process, "inputs": in, "evaluationCriterias": map[string]any{
				"exact":   map[string]any{"expectedOutput": map[string]any{"answers": in.Rounds * max(in.Parallel, 1), "segmentsCounted": true}},
				"command": nil,
			}})
		}
	}
	add(3, agentInput{})
	add(1, agentInput{Process: "Local", Rounds: 1})
	add(1, agentInput{Process: "Local", Rounds: 2})
	add(1, agentInput{Process: "Local", Rounds: 1, Parallel: 2})
	add(1, agentInput{Process: "Idempotent", Rounds: 1})
	add(2, agentInput{Process: "Searchable", Rounds: 1})
	add(2, agentInput{Process: "AtMostOnce", Rounds: 1})
	add(2, agentInput{Process: "Mesh", Rounds: 1})
	add(1, agentInput{Process: asksProcess, Rounds: 1})
	s.total = len(evaluations)
	s.write("set.json", map[string]any{
		"version": "1.0", "id": "crash", "name": "Crash", "evaluations": evaluations,
		"agent": map[string]any{"type": "function", "command": []string{self, "agent"}},
		"jobs": map[string]any{
			"Local":      map[string]any{"source": "exec", "command": []string{self, "job"}, "env": map[string]string{"CRASHTEST_DIR": s.dir}},
			"Idempotent": s.service.job("/idempotent", map[string]any{"idempotencyHeader": "Idempotency-Key"}),
			"Searchable": s.service.job("/plain", map[string]any{"find": map[string]any{"url": s.service.URL + "/find/{triggerId}", "itemKey": ".id"}}),
			"AtMostOnce": s.service.job("/plain", nil),
			"Mesh":       map[string]any{"source": "mesh", "url": s.service.URL + "/mesh", "interval": "20ms", "maxInterval": "100ms"},
			asksProcess:  map[string]any{"source": "mesh", "url": s.service.URL + "/mesh", "interval": "20ms", "maxInterval": "100ms"},
		},
		"notify": s.service.target(),
		"evaluators": []any{
			map[string]any{"version": "1.0", "id": "exact", "evaluatorTypeId": "uipath-exact-match", "evaluatorConfig": map[string]any{"name": "exact"}},
			map[string]any{"id": "command", "type": "command", "command": []string{self, "evaluator"}},
		},
	})
	s.answerQuestions()
	return s
}

// write writes a file of the scenario. The last set says whether the service is told of events.
func (s *scenario) write(name string, v map[string]any) {
	_, s.notifies = v["notify"]
	data, err := json.Marshal(v)
	if err == nil {
		err = os.WriteFile(filepath.Join(s.dir, name), data, 0o600)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// command is evalrun run of the scenario's run, which creates it or goes on with it.
func (s *scenario) command(env ...string) *exec.Cmd {
	cmd := exec.Command(s.program, "run", "--wait", "--wait-timeout", "60s", "-j", "4", "--run-id", runID, "--fail-on-error=100%")
	cmd.Args = append(cmd.Args, append(s.flags, "set.json")...)
	cmd.Dir = s.dir
	cmd.Env = append(append(os.Environ(), "XDG_STATE_HOME="+filepath.Join(s.dir, "state"), "JOBS_TOKEN=the-token-of-the-jobs"), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// finish lets a process that nobody kills do the rest. Its time is longer than the longest pause
// between two attempts to reach a service, which is a minute.
func (s *scenario) finish(env ...string) {
	s.t.Helper()
	cmd := s.command(env...)
	cmd.Args = append(cmd.Args, "--wait-timeout", "180s")
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Fatalf("the last process: %v\n%s", err, out)
	}
}

// killed runs a process and reports whether it was killed.
func (s *scenario) killed(cmd *exec.Cmd) bool {
	s.t.Helper()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if err == nil {
		return false
	}
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() && status.Signal() == syscall.SIGKILL {
		return true
	}
	s.t.Fatalf("%v\n%s", err, out.String())
	return false
}

// violations says what is wrong with the finished run.
func (s *scenario) violations() (wrong []string) {
	s.t.Helper()
	note := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	st := s.open()
	defer st.Close()
	ctx := s.t.Context()
	err := st.Snapshot(ctx, s.run, func(v store.View) error {
		if run := v.Run(); !run.Final() || run.Counts.Total != s.total {
			note("the run is not final or has lost rollouts: %+v", run)
		}
		return v.Rollouts(func(o store.RolloutView) error {
			s.checkRollout(o, note)
			return nil
		})
	})
	if err != nil {
		s.t.Fatal(err)
	}
	events, err := st.Events(ctx, s.run, 0, 1_000_000)
	if err != nil {
		s.t.Fatal(err)
	}
	checkEvents(events, s.total, note)
	if !s.forgets {
		s.checkEventLog(st.Dir(), events, note)
	}
	switch {
	case s.called != nil:
		s.checkCalled(note)
		s.checkProcesses(note)
	case s.asks:
		s.checkProcesses(note)
	case s.judged:
	case s.scored:
		s.checkLocalJobs(note)
		s.checkScored(note)
	default:
		s.checkJobs(note)
		s.checkAnswers(note)
		s.checkTold(st, events, note)
	}
	return wrong
}

func (s *scenario) checkRollout(o store.RolloutView, note func(string, ...any)) {
	switch {
	case s.faults[o.EvaluationID] != "":
		s.checkFault(o, note)
		return
	case !s.noFault && o.State == eval.StateFaulted && o.Fault.Category == "start-unknown" && strings.HasSuffix(o.EvaluationName, "AtMostOnce"):
		return
	case o.State != eval.StateCompleted:
		note("rollout %s (%s) is %s: %+v", o.ID, o.EvaluationName, o.State, o.Fault)
		return
	case o.Score == nil || *o.Score != cmp.Or(s.score, 1):
		note("rollout %s (%s) has the score %v: an answer or its workspace was lost: %v", o.ID, o.EvaluationName, o.Score, o.Results)
	case len(o.Results) != s.results:
		note("rollout %s (%s) has %d results", o.ID, o.EvaluationName, len(o.Results))
	}
	if s.asks {
		s.checkPrompts(o, note)
	}
	ended := map[int]int{}
	for _, g := range o.Segments {
		if at, ok := ended[g.Number]; ok {
			note("rollout %s (%s): segment %d ended with attempt %d and was run again", o.ID, o.EvaluationName, g.Number, at)
		}
		if g.Outcome == store.OutcomeCompleted || g.Outcome == store.OutcomeSuspended {
			ended[g.Number] = g.Attempt
		}
	}
	if len(ended) != o.Segment {
		note("rollout %s (%s): %d segments have ended of %d", o.ID, o.EvaluationName, len(ended), o.Segment)
	}
}

func checkEvents(events []store.Event, total int, note func(string, ...any)) {
	finished := map[string]int{}
	runs := 0
	for i, e := range events {
		if e.Seq != int64(i+1) {
			note("event %d has the number %d", i+1, e.Seq)
		}
		switch e.Type {
		case store.RolloutFinished:
			finished[e.RolloutID]++
		case store.RunFinished:
			runs++
		}
	}
	for id, n := range finished {
		if n != 1 {
			note("rollout %s finished %d times", id, n)
		}
	}
	if len(finished) != total || runs != 1 {
		note("%d of %d rollouts finished, the run %d times", len(finished), total, runs)
	}
}

// checkEventLog compares events.jsonl, which all the processes wrote, with the store.
func (s *scenario) checkEventLog(dir string, events []store.Event, note func(string, ...any)) {
	data, err := os.ReadFile(filepath.Join(dir, "runs", s.run, "events.jsonl"))
	if err != nil {
		note("%v", err)
		return
	}
	lines := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
	if len(lines) != len(events) {
		note("events.jsonl has %d lines, the store %d events", len(lines), len(events))
		return
	}
	for i, line := range lines {
		var e store.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.Seq != events[i].Seq || e.Type != events[i].Type {
			note("events.jsonl:%d: %s (%v), expected event %d", i+1, line, err, events[i].Seq)
		}
	}
}

func (s *scenario) checkJobs(note func(string, ...any)) {
	if twice := s.service.startedTwice(); len(twice) > 0 {
		note("jobs started twice over HTTP: %v", twice)
	}
	s.checkLocalJobs(note)
}

// checkLocalJobs counts the starts of each local job.
func (s *scenario) checkLocalJobs(note func(string, ...any)) {
	marks, err := filepath.Glob(filepath.Join(s.dir, "job-*"))
	if err != nil {
		s.t.Fatal(err)
	}
	for _, mark := range marks {
		if n, err := countLines(mark); err != nil || n != 1 {
			note("the local job %s was started %d times (%v)", filepath.Base(mark), n, err)
		}
	}
}
