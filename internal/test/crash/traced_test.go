package crash

import (
	"encoding/hex"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/evalrun/evalrun/internal/peers/fakecollector"
	"github.com/evalrun/evalrun/internal/testenv"
)

// tracing are the steps of sending traces.
var tracing = []string{"telemetry.sending", "telemetry.sent", "telemetry.noted"}

// newCollector is a collector with its URL.
func newCollector(t *testing.T) (*fakecollector.Collector, string) {
	t.Helper()
	c := &fakecollector.Collector{}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	return c, server.URL
}

// checkTraces checks that a collector has every span of the run that the store has, as one that gets
// all of it now, and that what it has twice is the same span with the same id. again has evalrun
// resume the run and send it to a URL.
func checkTraces(t *testing.T, c *fakecollector.Collector, again func(url string)) {
	t.Helper()
	all, url := newCollector(t)
	again(url)
	want := map[string]fakecollector.Span{}
	for _, s := range all.Spans() {
		want[hex.EncodeToString(s.SpanId)] = s
	}
	if len(want) == 0 || len(want) != len(all.Spans()) {
		t.Fatalf("the whole run is %d spans with %d ids", len(all.Spans()), len(want))
	}
	got := map[string]int{}
	for _, s := range c.Spans() {
		id := hex.EncodeToString(s.SpanId)
		if got[id]++; got[id] > 2 {
			t.Errorf("%s has come %d times after one kill", s.Name, got[id])
		}
		if one, ok := want[id]; ok && !proto.Equal(one.Span, s.Span) {
			t.Errorf("%s was sent as\n%v and\n%v", s.Name, s.Span, one.Span)
		} else if !ok {
			t.Errorf("%s, which the store does not have, was sent", s.Name)
		}
	}
	for id, s := range want {
		if got[id] == 0 {
			t.Errorf("%s was not sent", s.Name)
		}
	}
}

// newTracedScenario is an eval set of three rollouts. With asks each of them waits for an answer.
func newTracedScenario(t *testing.T, asks bool) *scenario {
	t.Helper()
	s := emptyScenario(t, "failpoint")
	s.total = 3
	var evaluations []any
	for i := range s.total {
		evaluations = append(evaluations, map[string]any{"id": fmt.Sprint("e", i), "name": fmt.Sprint("e", i), "inputs": map[string]any{}, "evaluationCriterias": map[string]any{"exact": map[string]any{"expectedOutput": map[string]any{"n": 1}}}})
	}
	agent := `cat > /dev/null; echo '{"n": 1}'`
	if asks {
		agent = `case "$(cat)" in *'"resume":null'*) echo '{"__interrupt__": {"id": "may-i", "value": {"title": "May I?"}}}' ;; *) echo '{"n": 1}' ;; esac`
	}
	s.write("set.json", map[string]any{"version": "1.0", "id": "traced", "name": "Traced", "evaluations": evaluations,
		"agent":      map[string]any{"type": "function", "name": "a", "command": []string{"sh", "-c", agent}},
		"evaluators": []any{map[string]any{"version": "1.0", "id": "exact", "evaluatorTypeId": "uipath-exact-match", "evaluatorConfig": map[string]any{"name": "exact"}}}})
	return s
}

// sendTo has evalrun send the whole run to another collector.
func (s *scenario) sendTo(url string) {
	s.t.Helper()
	if code, out := s.evalrun("resume", runID, "--otlp", url); code != 0 && code != 75 {
		s.t.Fatalf("resume --otlp: %d\n%s", code, out)
	}
}

// A run that sends traces is killed at each step of that. Its collector gets everything that the
// store has, and nothing under two ids.
func TestTracesKilledAtEachStep(t *testing.T) {
	testenv.NeedSlow(t)
	for _, step := range tracing {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			s := newTracedScenario(t, false)
			c, url := newCollector(t)
			s.flags = []string{"--otlp", url}
			if !s.killed(s.command("EVALRUN_FAILPOINT=kill:" + step + ":1")) {
				t.Errorf("there was no step %s", step)
			}
			s.finish()
			checkTraces(t, c, s.sendTo)
		})
	}
}

// executor is evalrun executor --once, which sends traces.
func (s *scenario) executor(url string, env ...string) *exec.Cmd {
	cmd := exec.Command(s.program, "executor", "--once", "--otlp", url)
	cmd.Dir, cmd.Env = s.dir, append(os.Environ(), env...)
	return cmd
}

// The same of executors, which send what has happened in all open runs of the store, also where the
// process before them sent nothing.
func TestTracesOfAnExecutorKilledAtEachStep(t *testing.T) {
	testenv.NeedSlow(t)
	for _, step := range tracing {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			s := newTracedScenario(t, true)
			if code, out := s.evalrun("run", "--run-id", runID, "set.json"); code != 75 {
				t.Fatalf("%d\n%s", code, out)
			}
			c, url := newCollector(t)
			if !s.killed(s.executor(url, "EVALRUN_FAILPOINT=kill:"+step+":1")) {
				t.Errorf("there was no step %s", step)
			}
			if out, err := s.executor(url).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			checkTraces(t, c, s.sendTo) // while it is suspended
			for _, id := range s.waiting() {
				if code, out := s.evalrun("deliver", id, "--payload", "set.json"); code != 0 {
					t.Fatalf("%d\n%s", code, out)
				}
			}
			if out, err := s.executor(url).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			checkTraces(t, c, s.sendTo)
		})
	}
}

// A run that became final after the process that sent its traces was killed, or while it was, is sent by
// the next executor: nobody has to know of it.
func TestTracesOfAFinalRunAreSentByTheNextExecutor(t *testing.T) {
	testenv.NeedSlow(t)
	for _, step := range append([]string{"telemetry.begun"}, tracing...) {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			s := newTracedScenario(t, false)
			c, url := newCollector(t)
			s.flags = []string{"--otlp", url}
			if !s.killed(s.command("EVALRUN_FAILPOINT=kill:" + step + ":1")) {
				t.Errorf("there was no step %s", step)
			}
			s.flags = nil
			s.finish()
			if out, err := s.executor(url).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			checkTraces(t, c, s.sendTo)
			sent := len(c.Spans())
			if out, err := s.executor(url).CombinedOutput(); err != nil || len(c.Spans()) != sent {
				t.Errorf("one more sends %d spans, %v\n%s", len(c.Spans())-sent, err, out)
			}
		})
	}
}

// The same of the service: the server is killed while it sends what a run has come to that was started
// over HTTP, and the next one sends the rest.
func TestTracesOfAServerKilledAtEachStep(t *testing.T) {
	testenv.NeedSlow(t)
	for _, step := range tracing {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			s := newServed(t, "failpoint")
			c, url := newCollector(t)
			server := s.startWith([]string{"EVALRUN_FAILPOINT=kill:" + step + ":1"}, "--otlp", url)
			var run struct{ RunID string }
			s.again("POST", "/v1/runs", `{"evalSet": "invoices"}`, "once", &run)
			if err := server.Wait(); err == nil || server.ProcessState.Exited() {
				t.Fatalf("the server was not killed: %v", err)
			}
			server = s.start("--otlp", url)
			s.poll(run.RunID, s.answer)
			if err := server.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
			if err := server.Wait(); err != nil {
				t.Errorf("the last server: %v", err)
			}
			checkTraces(t, c, func(url string) {
				cmd := exec.CommandContext(t.Context(), s.program, "resume", run.RunID, "--store", s.store, "--otlp", url)
				cmd.Dir = filepath.Dir(s.config)
				if out, err := cmd.CombinedOutput(); err != nil && cmd.ProcessState.ExitCode() > 5 {
					t.Fatalf("%v\n%s", err, out)
				}
			})
		})
	}
}
