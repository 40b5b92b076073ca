package mesh

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/testenv"
)

const (
	variable         = "EVALRUN_MESH"
	registryVariable = "EVALRUN_MESH_REGISTRY"
	pythonVariable   = "EVALRUN_MESH_PYTHON"
	// insideVariable says that the network is one of the tests' own.
	insideVariable = "EVALRUN_MESH_INSIDE"

	registryURL = "http://127.0.0.1:8000"
)

// TestMain begins again in a network that has nothing but a loopback interface.
func TestMain(m *testing.M) {
	if os.Getenv(insideVariable) == "" && (lacksPython() == nil || lacksRegistry() == nil) {
		if err := enter(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// enter replaces this process.
func enter() error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	unshare, err := exec.LookPath("unshare")
	if err != nil {
		return err
	}
	args := []string{unshare, "--net"}
	if os.Getuid() != 0 {
		args = append(args, "--map-root-user")
	}
	args = append(args, "--", "sh", "-c", `ip link set lo up && exec "$@"`, "sh", program)
	return syscall.Exec(unshare, append(args, os.Args[1:]...), append(os.Environ(), insideVariable+"=1"))
}

// python is the Python that has MCP Mesh's packages.
func python() string {
	if p := os.Getenv(pythonVariable); p != "" {
		return p
	}
	dir, err := os.Getwd()
	if err != nil {
		return err.Error() // there is no such program
	}
	return filepath.Join(dir, ".venv", "bin", "python")
}

func lacksPython() error {
	if _, err := os.Stat(python()); err != nil {
		return fmt.Errorf("there is no Python with mcp-mesh, see the comment of this package: %w", err)
	}
	return nil
}

func lacksRegistry() error {
	path := os.Getenv(registryVariable)
	if path == "" {
		return errors.New(registryVariable + " does not name the program of MCP Mesh's registry, see the comment of this package")
	}
	_, err := os.Stat(path)
	return err
}

// world is a folder with the processes of a mesh.
type world struct {
	*testing.T
	dir     string
	evalrun string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	programs := t.TempDir()
	if err := testenv.Build(programs, testenv.Evalrun); err != nil {
		t.Fatal(err)
	}
	return &world{t, t.TempDir(), filepath.Join(programs, "evalrun")}
}

func (w *world) write(name, text string) {
	w.Helper()
	testenv.Mkdir(w, filepath.Dir(filepath.Join(w.dir, name)))
	if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o600); err != nil {
		w.Fatal(err)
	}
}

// start starts a program, whose output goes to a file of the name.
func (w *world) start(name string, env []string, program string, args ...string) *exec.Cmd {
	w.Helper()
	output, err := os.OpenFile(filepath.Join(w.dir, name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		w.Fatal(err)
	}
	defer output.Close()
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.Env = w.dir, output, output, append(os.Environ(), env...)
	if err := cmd.Start(); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
		if w.Failed() {
			w.Logf("%s:\n%s", name, testenv.ReadFile(w, w.dir, name))
		}
	})
	return cmd
}

// kill is kill -9.
func (w *world) kill(cmd *exec.Cmd) {
	w.Helper()
	if err := cmd.Process.Kill(); err != nil {
		w.Fatal(err)
	}
	_ = cmd.Wait()
}

// registry starts a registry. It may give the jobs of an agent to others of which it has not heard
// for 4 s.
func (w *world) registry() *exec.Cmd {
	w.Helper()
	return w.start("registry.log", []string{
		"HOST=127.0.0.1", "PORT=8000", "DATABASE_URL=" + filepath.Join(w.dir, "registry.db"), "MCP_MESH_LOG_LEVEL=WARNING",
		"DEFAULT_TIMEOUT_THRESHOLD=4", "HEALTH_CHECK_INTERVAL=1", "MCP_MESH_SWEEP_INTERVAL=1s",
	}, os.Getenv(registryVariable))
}

func (w *world) serve() *exec.Cmd {
	w.Helper()
	return w.start("serve.log", []string{"EVALRUN_STORE="}, w.evalrun, "serve", "--config", "serve.yaml", "--listen", "127.0.0.1:8484", "--log-level", "info")
}

// run runs a program to its end, and returns what it prints.
func (w *world) run(program string, args ...string) string {
	w.Helper()
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Env = w.dir, append(os.Environ(), "EVALRUN_STORE=")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		w.Fatalf("%s: %v\n%s%s", filepath.Base(program), err, &stdout, &stderr)
	}
	return strings.TrimSpace(stdout.String())
}

// script runs a script of this folder.
func (w *world) script(name string, args ...string) string {
	w.Helper()
	path, err := filepath.Abs(name)
	if err != nil {
		w.Fatal(err)
	}
	return w.run(python(), append([]string{path}, args...)...)
}

// answers waits until a server answers.
func (w *world) answers(url string) {
	w.Helper()
	if !testenv.Eventually(func() bool {
		a, err := http.Get(url)
		if err == nil {
			_ = a.Body.Close()
		}
		return err == nil
	}) {
		w.Fatalf("%s does not answer", url)
	}
}

// get reads JSON of the registry.
func (w *world) get(path string, into any) error {
	a, err := http.Get(registryURL + path)
	if err != nil {
		return err
	}
	defer a.Body.Close()
	data, err := io.ReadAll(a.Body)
	if err == nil && a.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", a.Status, data)
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

// evalSet is a set of one evaluation that an agent does.
func evalSet(name string) string {
	return `{"version": "1.0", "id": "` + name + `", "name": "` + name + `", "agent": "` + name + `",
		"evaluators": [{"version": "1.0", "id": "c", "evaluatorTypeId": "uipath-contains", "evaluatorConfig": {"name": "C"}}],
		"evaluations": [{"id": "one", "name": "One", "inputs": {"text": "hello"}, "evaluationCriterias": {"c": {"searchText": "hello"}}}]}`
}

// agents are a configuration with an eval set for each.
const agents = `agents:
  - {type: function, name: echo, command: [cat]}
  - {type: function, name: bad, command: [sh, -c, "exit 3"]}
  - {type: function, name: slow, command: [sh, -c, "sleep 600"]}
  - {type: function, name: person, command: [sh, person.sh]}
evalSets: sets
`

func (w *world) writeSets() {
	w.Helper()
	w.write("person.sh", `case $(cat) in
*'"resume":null'*) echo '{"__interrupt__": [{"id": "q", "value": {"type": "CreateTask", "title": "Go on?"}}]}' ;;
*) echo '{"text": "hello"}' ;;
esac
`)
	for _, name := range []string{"echo", "bad", "slow", "person"} {
		w.write("sets/"+name+".json", evalSet(name))
	}
}

// TestTheClientOfAMesh is G21: the client of MCP Mesh submits, watches, answers and cancels jobs at
// evalrun serve, with nothing between them, and the token is in no log.
func TestTheClientOfAMesh(t *testing.T) {
	testenv.Need(t, variable, lacksPython())
	w := newWorld(t)
	w.write("serve.yaml", agents)
	w.writeSets()
	token := w.run(w.evalrun, "token", "new", "--quiet", "--scope", "read,run,deliver")
	w.serve()
	w.answers("http://127.0.0.1:8484/healthz")
	for _, url := range []string{"http://127.0.0.1:8484/jobs/t/" + token, "http://evalrun:" + token + "@127.0.0.1:8484"} {
		if got := w.script("client.py", url); !strings.HasSuffix(got, "finished\nfailed\ncancelled\nanswered") {
			t.Errorf("the client did %s", got)
		}
	}
	if log := testenv.ReadFile(t, w.dir, "serve.log"); strings.Contains(log, token) || !strings.Contains(log, "path=/jobs/") {
		t.Errorf("the log has the token, or no requests:\n%s", log)
	}
}

// TestAConsumerOfAMesh is G22: an agent of the mesh that depends on run_eval has an eval set run by
// the submitter that its runtime injects, and gets the verdict.
func TestAConsumerOfAMesh(t *testing.T) {
	testenv.Need(t, variable, errors.Join(lacksPython(), lacksRegistry()))
	w := newWorld(t)
	w.registry()
	w.answers(registryURL + "/health")
	fixture := filepath.Join(testenv.Top(t), "fixtures", "mesh", "provider")
	if err := os.CopyFS(w.dir, os.DirFS(fixture)); err != nil {
		t.Fatal(err)
	}
	w.serve()
	// On a slow machine the runtime begins before its server is there, unless it is told to wait.
	w.start("consumer.log", []string{"MCP_MESH_REGISTRY_URL=" + registryURL, "MCP_MESH_DEBOUNCE_DELAY=10"}, python(), "consumer.py")
	if got := w.script("gate.py", "greet"); got != "finished" {
		t.Errorf("the verdict is %s", got)
	}
	var page struct{ Jobs []job }
	if err := w.get("/jobs?capability=run_eval", &page); err != nil || len(page.Jobs) != 1 {
		t.Fatalf("the jobs are %+v, %v", page.Jobs, err)
	}
	if one := page.Jobs[0]; one.Status != "completed" || one.Attempts != 1 || !strings.HasPrefix(one.Owner, "evalrun") {
		t.Errorf("the job is %+v", one)
	}
}

// job is a job of the registry.
type job struct {
	ID       string
	Status   string
	Owner    string `json:"owner_instance_id"`
	Attempts int    `json:"attempt_count"`
	Error    string
	Payload  struct{ Inputs struct{ N int } } `json:"submitted_payload"`
	Result   struct{ RunID, Status string }
}

// send sends JSON to a registry that is there, and returns the id in its answer.
func (w *world) send(path string, document any) string {
	w.Helper()
	body, err := json.Marshal(document)
	if err != nil {
		w.Fatal(err)
	}
	a, err := http.Post(registryURL+path, "application/json", bytes.NewReader(body))
	if err != nil {
		w.Fatal(err)
	}
	defer a.Body.Close()
	var said struct{ ID string }
	if err := json.NewDecoder(a.Body).Decode(&said); err != nil || a.StatusCode >= 300 {
		w.Fatalf("%s: %s %v", path, a.Status, err)
	}
	return said.ID
}

type object = map[string]any

// submit submits a job that runs an eval set.
func (w *world) submit(evalSet string, n int) {
	w.Helper()
	w.send("/jobs", object{
		"capability": "run_eval", "submitted_by": "test", "max_retries": 1000,
		"submitted_payload": object{"evalSet": evalSet, "inputs": object{"n": n}},
	})
}

// TestJobsOfARealRegistry is G22: what a registry says of a job happens to its run, and the other way
// round.
func TestJobsOfARealRegistry(t *testing.T) {
	testenv.Need(t, variable, lacksRegistry())
	w := newWorld(t)
	w.registry()
	w.write("serve.yaml", agents+`mesh:
  registry: "`+registryURL+`"
  capabilities: {run_eval: {}, echo: {evalSet: echo}, bad: {evalSet: bad, retryOn: [exit]}}
`)
	w.writeSets()
	w.answers(registryURL + "/health")
	w.serve()
	run := func(evalSet string, more object) string {
		q := object{"capability": "run_eval", "submitted_by": "test", "submitted_payload": object{"evalSet": evalSet}}
		maps.Copy(q, more)
		return w.send("/jobs", q)
	}
	echo := w.send("/jobs", object{"capability": "echo", "submitted_by": "test", "submitted_payload": object{}})
	unknown := run("nothing", nil)
	cancelled, late := run("slow", nil), run("slow", object{"total_deadline": time.Now().Add(5 * time.Second).Unix()})
	bad := w.send("/jobs", object{"capability": "bad", "submitted_by": "test", "submitted_payload": object{}, "max_retries": 2})
	asks := run("person", nil)
	w.reaches(asks, "input_required")
	w.send("/jobs/"+asks+"/events", object{"type": "answer", "payload": object{"value": 1}})
	w.claimed(cancelled)
	w.send("/jobs/"+cancelled+"/cancel", object{"reason": "enough"})
	for _, one := range []struct {
		id, status, problem string
		attempts            int
	}{
		{echo, "completed", "", 1}, {asks, "completed", "", 1}, {cancelled, "cancelled", "cancelled: enough", 1}, {late, "failed", "deadline_exceeded", 1},
		{unknown, "failed", `there is no eval set "nothing"; there are: bad, echo, person, slow`, 1}, {bad, "failed", "exit: the agent ended with exit status 3", 3},
	} {
		if got := w.reaches(one.id, one.status); got.Error != one.problem || got.Attempts != one.attempts {
			t.Errorf("%+v", got)
		}
	}
	w.allEnd()
}

// reaches waits until a job has a status.
func (w *world) reaches(id, status string) (one job) {
	w.Helper()
	if !testenv.Eventually(func() bool { return w.get("/jobs/"+id, &one) == nil && one.Status == status }) {
		w.Fatalf("the job is not %s: %+v", status, one)
	}
	return one
}

// claimed waits until a job is claimed.
func (w *world) claimed(id string) {
	w.Helper()
	var one job
	if !testenv.Eventually(func() bool { return w.get("/jobs/"+id, &one) == nil && one.Owner != "" }) {
		w.Fatalf("nobody claims %+v", one)
	}
}

// allEnd waits until all runs of the store have ended.
func (w *world) allEnd() {
	w.Helper()
	type run struct{ Final bool }
	if !testenv.Eventually(func() bool {
		var runs []run
		if err := json.Unmarshal([]byte(w.run(w.evalrun, "list", "--json")), &runs); err != nil {
			w.Fatal(err)
		}
		return !slices.ContainsFunc(runs, func(r run) bool { return !r.Final })
	}) {
		w.Fatal("a run goes on whose job has ended")
	}
}

// working writes down when it is asked, starts and ends. It takes half a second, or suspends before.
const working = `import json, sys, time
d = json.load(sys.stdin)
def note(what):
    with open("agent.log", "a") as f:
        f.write(json.dumps({"n": d["input"]["n"], "what": what, "at": time.time_ns()}) + "\n")
if sys.argv[1] == "waits" and d["resume"] is None:
    note("asked")
    print(json.dumps({"__interrupt__": [{"id": "q", "value": {"type": "WaitUntil", "resume_time": "2020-01-01T00:00:00Z"}}]}))
else:
    note("started")
    time.sleep(0.5)
    note("ended")
    print(json.dumps({"text": "hello"}))
`

// note is what the agent has written down.
type note struct {
	N    int
	What string
	At   int64
}

// TestKillsOfARealMesh is G22: the registry and the provider are killed in turn while jobs run. Each
// job is done once: it is one run with one end, and its agent was started again only if the provider
// was killed before.
func TestKillsOfARealMesh(t *testing.T) {
	testenv.Need(t, variable, lacksRegistry())
	testenv.NeedPython(t)
	kills := 4
	if os.Getenv(testenv.Long) != "" {
		kills = 20
	}
	w := newWorld(t)
	w.write("agent.py", working)
	w.write("serve.yaml", `agents:
  - {type: function, name: quick, command: [python3, agent.py, quick]}
  - {type: function, name: waits, command: [python3, agent.py, waits]}
evalSets: sets
mesh: {registry: "`+registryURL+`", capabilities: {run_eval: {}}}
`)
	w.write("sets/quick.json", evalSet("quick"))
	w.write("sets/waits.json", evalSet("waits"))
	registry, provider := w.registry(), w.serve()
	var submitted, killed []time.Time // of each job, and of the provider
	for n := range kills {
		w.answers(registryURL + "/health")
		for _, name := range []string{"quick", "waits", "quick"} {
			submitted = append(submitted, time.Now())
			w.submit(name, len(submitted)-1)
		}
		time.Sleep(rand.N(3 * time.Second)) // anywhere in what is done meanwhile
		w.kill(registry)
		time.Sleep(rand.N(time.Second))
		registry = w.registry()
		time.Sleep(rand.N(3 * time.Second))
		w.kill(provider)
		killed = append(killed, time.Now())
		away := time.Second
		if n%4 == 3 {
			away = 10 * time.Second // so long that the registry may give the jobs to others
		}
		time.Sleep(rand.N(away))
		provider = w.serve()
	}
	all, done := map[string]job{}, 0
	for done < len(submitted) { // however slow the machine is, one job more is done in a while
		before := done
		if !testenv.Eventually(func() bool {
			var page struct{ Jobs []job }
			if w.get("/jobs?limit=200", &page) != nil {
				return false
			}
			done = 0
			for _, one := range page.Jobs {
				if all[one.ID] = one; one.Status == "completed" {
					done++
				}
			}
			return done > before
		}) {
			t.Fatalf("no more than %d of %d jobs are done: %+v", done, len(submitted), all)
		}
	}
	w.oneRunEach(all)
	w.startedOnce(submitted, killed)
}

// oneRunEach checks that each job is a run of its own, which has ended once.
func (w *world) oneRunEach(all map[string]job) {
	w.Helper()
	runs, claims := map[string]bool{}, 0
	for id, one := range all {
		if one.Result.Status != "successful" || runs[one.Result.RunID] {
			w.Errorf("job %s is done by run %s, which is %s", id, one.Result.RunID, one.Result.Status)
		}
		runs[one.Result.RunID] = true
		claims += one.Attempts
		var log struct{ Events []struct{ Type string } }
		if err := w.get("/jobs/"+id+"/events?types=run.finished&limit=500", &log); err != nil {
			w.Fatal(err)
		}
		if len(log.Events) != 1 {
			w.Errorf("job %s has finished %d times", id, len(log.Events))
		}
	}
	var listed []struct{ RunID string }
	if err := json.Unmarshal([]byte(w.run(w.evalrun, "list", "--json")), &listed); err != nil || len(listed) != len(all) {
		w.Errorf("%d jobs are %d runs: %v", len(all), len(listed), err)
	}
	w.Logf("%d jobs were claimed %d times", len(all), claims)
}

// startedOnce checks that the agent of each job has ended, and was started at most once more for each
// time that the provider was killed meanwhile.
func (w *world) startedOnce(submitted, killed []time.Time) {
	w.Helper()
	notes := map[int][]note{}
	for _, one := range testenv.ReadLines[note](w, w.dir, "agent.log") {
		notes[one.N] = append(notes[one.N], one)
	}
	again := 0
	for n, since := range submitted {
		said := map[string]int{}
		var last int64
		for _, one := range notes[n] {
			if said[one.What]++; one.What != "ended" {
				last = one.At
			}
		}
		interrupted := 0
		for _, at := range killed {
			if at.After(since) && at.UnixNano() < last {
				interrupted++
			}
		}
		expected := 1 // and for waits another one, to ask
		if said["asked"] > 0 {
			expected = 2
		}
		more := said["started"] + said["asked"] - expected
		if again += more; said["ended"] == 0 || more > interrupted {
			w.Errorf("the agent of job %d did %v, and the provider was killed %d times meanwhile", n, said, interrupted)
		}
	}
	w.Logf("the provider was killed %d times; of %d jobs agents were started %d times again", len(killed), len(submitted), again)
}
