package crash

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/testenv"
)

// TestServerless has no process live between two calls: a run is started, worked on and answered by
// processes that are each started for one call and killed after its answer, two of them at once at times.
// Its rollouts wait for HTTP jobs, for people, and for both in turn. All of them end, nothing is done twice, and
// what it has cost is printed. With a store in PostgreSQL the files of each process are lost with it.
//
// EVALRUN_TICKS_ROLLOUTS and EVALRUN_SEED change what it does.
func TestServerless(t *testing.T) {
	testenv.NeedSlow(t)
	for name, where := range map[string]func(*testing.T, *platform){
		"folder": func(*testing.T, *platform) {},
		"PostgreSQL": func(t *testing.T, p *platform) {
			p.store, p.forgets = testenv.StartPostgres(t).URL, true
			p.environ = append(p.environ, "EVALRUN_STORE="+p.store)
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlatform(t, number(t, "EVALRUN_TICKS_ROLLOUTS", 40), uint64(number(t, "EVALRUN_SEED", int(rand.Uint32()))))
			where(t, p)
			p.begin()
			for p.goesOn() {
				if p.ticks > 30+4*p.total {
					_, standing := p.evalrun("show", p.run)
					t.Fatalf("%d ticks have not ended the run:\n%s", p.ticks, standing)
				}
			}
			for _, wrong := range p.violations() {
				t.Error(wrong)
			}
			t.Logf("%d rollouts by %d ticks (%d of them over HTTP, %d pairs), %d answers of people: "+
				"ticks %.1f s of CPU with their agents, %.0f ms a rollout; requests %.1f s, %.0f ms each",
				p.total, p.ticks, p.overHTTP, p.pairs, p.answers, p.ticksCPU.Seconds(),
				1000*p.ticksCPU.Seconds()/float64(p.total), p.requestsCPU.Seconds(), 1000*p.requestsCPU.Seconds()/float64(p.requests))
		})
	}
}

// tickTime is how long a tick works. What it has not done then is left to the next one.
const tickTime = "5s"

// platform starts a process for each call, and kills it after its answer.
type platform struct {
	*scenario
	random *rand.Rand
	token  string

	mu                                        sync.Mutex
	ticks, overHTTP, pairs, answers, requests int
	ticksCPU, requestsCPU                     time.Duration
}

func newPlatform(t *testing.T, rollouts int, seed uint64) *platform {
	t.Helper()
	t.Logf("EVALRUN_SEED=%d", seed)
	p := &platform{scenario: emptyScenario(t, ""), random: rand.New(rand.NewPCG(seed, 0))} //nolint:gosec // it is to be repeated
	p.service, p.results, p.total, p.noFault = newJobService(t), 2, rollouts, true
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	kinds := []agentInput{{Process: "Idempotent", Rounds: 1}, {Process: asksPerson, Rounds: 1}, {Process: jobThenPerson, Rounds: 2}, {Process: "Searchable", Rounds: 2}}
	var evaluations []map[string]any
	for i := range rollouts {
		in, id := kinds[i%len(kinds)], fmt.Sprint("e", i)
		evaluations = append(evaluations, map[string]any{"id": id, "name": id + " " + in.Process, "inputs": in, "evaluationCriterias": map[string]any{
			"exact": map[string]any{"expectedOutput": map[string]any{"answers": in.Rounds, "segmentsCounted": true}}, "command": nil,
		}})
	}
	idempotent := p.service.job("/idempotent", map[string]any{"idempotencyHeader": "Idempotency-Key"})
	p.write("set.json", map[string]any{
		"version": "1.0", "id": "serverless", "name": "Serverless", "evaluations": evaluations,
		"agent": map[string]any{"type": "function", "command": []string{self, "agent"}},
		"jobs": map[string]any{
			"Idempotent": idempotent, jobThenPerson: idempotent,
			"Searchable": p.service.job("/plain", map[string]any{"find": map[string]any{"url": p.service.URL + "/find/{triggerId}", "itemKey": ".id"}}),
		},
		"evaluators": []any{
			map[string]any{"version": "1.0", "id": "exact", "evaluatorTypeId": "uipath-exact-match", "evaluatorConfig": map[string]any{"name": "exact"}},
			map[string]any{"id": "command", "type": "command", "command": []string{self, "evaluator"}},
		},
	})
	p.write("serve.json", map[string]any{"evalSets": map[string]any{"serverless": "set.json"}})
	return p
}

// process is a process of evalrun for one call. With a store elsewhere it has a folder of its own, which
// ended removes.
func (p *platform) process(args ...string) (cmd *exec.Cmd, ended func() time.Duration) {
	state := p.dir
	if p.forgets {
		state = p.t.TempDir()
	}
	cmd = exec.Command(p.program, args...)
	cmd.Dir = p.dir
	cmd.Env = append(append(os.Environ(), "XDG_STATE_HOME="+filepath.Join(state, "state"), "JOBS_TOKEN=the-token-of-the-jobs"), p.environ...)
	return cmd, func() time.Duration {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed, or has ended by itself
		if p.forgets {
			_ = os.RemoveAll(state) // the test removes what is left
		}
		return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
}

// begin has a call start the run.
func (p *platform) begin() {
	p.t.Helper()
	cmd, _ := p.process("token", "new", "--quiet", "--scope", "read,run,deliver")
	out, err := cmd.Output()
	if err != nil {
		p.t.Fatalf("a token: %v", err)
	}
	p.token = strings.TrimSpace(string(out))
	var started struct{ RunID string }
	p.request("POST", "/v1/runs", `{"evalSet": "serverless"}`, &started)
	p.run = started.RunID
}

// goesOn has one or two ticks do what is due, and people answer some of what they are asked, and reports whether
// the run has not ended.
func (p *platform) goesOn() bool {
	p.t.Helper()
	var run struct{ Final bool }
	p.request("GET", "/v1/runs/"+p.run, "", &run)
	if run.Final {
		return false
	}
	var waiting struct {
		Triggers []struct{ TriggerID, Type string }
	}
	p.request("GET", "/v1/triggers?limit=1000&runId="+p.run, "", &waiting)
	var calls sync.WaitGroup
	defer calls.Wait()
	both := p.random.IntN(3) == 0
	for range map[bool]int{false: 1, true: 2}[both] {
		work := p.tick
		if p.random.IntN(3) == 0 {
			work = p.tickOverHTTP
		}
		calls.Go(work)
	}
	if both {
		p.pairs++
	}
	for _, g := range waiting.Triggers {
		if g.Type == "JOB" || p.random.IntN(2) == 0 {
			continue
		}
		p.answers++
		p.request("POST", "/v1/triggers/"+g.TriggerID+"/deliver", `{"payload": {"approved": true}}`, nil)
	}
	return true
}

// tick has a process of its own do what is due, and kills it after its answer.
func (p *platform) tick() {
	cmd, ended := p.process("executor", "--once", "--max-time", tickTime, "-q", "--json")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		p.t.Error(err)
		return
	}
	err = json.NewDecoder(out).Decode(&struct{}{})
	cpu := ended()
	if err != nil {
		p.t.Errorf("a tick: %v\n%s", err, stderr.String())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ticks++
	p.ticksCPU += cpu
}

func (p *platform) tickOverHTTP() {
	cpu := p.call("POST", "/v1/tick", `{"maxTime": "`+tickTime+`"}`, nil)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ticks++
	p.overHTTP++
	p.ticksCPU += cpu
}

// request is a call that is no tick.
func (p *platform) request(method, path, body string, into any) {
	cpu := p.call(method, path, body, into)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests++
	p.requestsCPU += cpu
}

var servingAt = regexp.MustCompile(`serving (http://\S+)`)

// call starts a server for one request, and kills it after the answer. It returns the CPU time of the server.
func (p *platform) call(method, path, body string, into any) (cpu time.Duration) {
	cmd, ended := p.process("serve", "--no-executor", "--config", "serve.json", "--listen", "127.0.0.1:0")
	stderr, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		p.t.Error(err)
		return 0
	}
	var said []string
	var address string
	for lines := bufio.NewScanner(stderr); address == "" && lines.Scan(); {
		said = append(said, lines.Text())
		if found := servingAt.FindStringSubmatch(lines.Text()); found != nil {
			address = found[1]
		}
	}
	if address == "" {
		ended()
		p.t.Errorf("serve has not begun to listen:\n%s", strings.Join(said, "\n"))
		return 0
	}
	var rest bytes.Buffer
	read := make(chan struct{})
	go func() { _, _ = io.Copy(&rest, stderr); close(read) }()
	err = p.ask(method, address+path, body, into)
	if err != nil {
		_ = cmd.Process.Signal(syscall.SIGQUIT) // it says what it does
		<-read
		p.t.Errorf("%s %s: %v\n%s", method, path, err, rest.String())
	}
	cpu = ended()
	return cpu
}

func (p *platform) ask(method, url, body string, into any) error {
	ctx, cancel := context.WithTimeout(p.t.Context(), testenv.Patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+p.token)
	r.Header.Set("Content-Type", "application/json")
	r.Close = true // the server will not be there again
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	switch {
	case err != nil:
		return err
	case !slices.Contains([]int{http.StatusOK, http.StatusCreated, http.StatusAccepted}, answer.StatusCode):
		return errors.New(answer.Status + ": " + string(data))
	case into == nil:
		return nil
	}
	return json.Unmarshal(data, into)
}
