package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/evalrun/evalrun/internal/testenv"
	"github.com/evalrun/evalrun/runner"
)

// killable is a folder in which real processes of evalrun are started and killed.
type killable struct {
	*testing.T
	program, dir string
}

func newKillable(t *testing.T, files map[string]string) *killable {
	t.Helper()
	programs := t.TempDir()
	if err := testenv.Build(programs, testenv.Evalrun); err != nil {
		t.Fatal(err)
	}
	k := &killable{t, filepath.Join(programs, "evalrun"), t.TempDir()}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(k.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return k
}

// start starts evalrun, whose output goes to the file output.
func (k *killable) start(args ...string) *exec.Cmd {
	k.Helper()
	output, err := os.OpenFile(filepath.Join(k.dir, "output"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		k.Fatal(err)
	}
	defer output.Close()
	cmd := exec.Command(k.program, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = k.dir, output, output
	cmd.Env = append(os.Environ(), "EVALRUN_STORE=", "HOOK_SECRET=whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err := cmd.Start(); err != nil {
		k.Fatal(err)
	}
	k.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd
}

// kill kills a process at once.
func (k *killable) kill(cmd *exec.Cmd) {
	k.Helper()
	if err := cmd.Process.Kill(); err != nil {
		k.Fatal(err)
	}
	_ = cmd.Wait()
}

// ended waits for the end of a process, or of one that is told to end.
func (k *killable) ended(cmd *exec.Cmd, code int) {
	k.Helper()
	err := cmd.Wait()
	got := 0
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		got = exit.ExitCode()
	}
	if got != code {
		k.Fatalf("exit code %d, want %d: %v\n%s", got, code, err, testenv.ReadFile(k, k.dir, "output"))
	}
}

func (k *killable) open() *runner.Store {
	k.Helper()
	s, err := runner.Open(filepath.Join(k.dir, ".evalrun"), runner.OpenOptions{})
	if err != nil {
		k.Fatal(err)
	}
	k.Cleanup(func() { _ = s.Close() })
	return s
}

const twoWaiting = `version: "1.0"
id: s
name: S
agent: {type: function, command: [sh, -c, 'case $(cat) in *"\"resume\":null"*) echo "{\"__interrupt__\": [{\"id\": \"i\", \"value\": 1}]}" ;; *) echo "{\"content\": 1}" ;; esac']}
notify: [{url: "URL", secret: "${HOOK_SECRET}", events: [suspended]}]
evaluations:
  - {id: a, name: A, inputs: {}, evaluationCriterias: {}}
  - {id: b, name: B, inputs: {}, evaluationCriterias: {}}
`

// kill -9 while one notification is being sent and the next one is committed: both are delivered by
// the next process, the first one with the id that it had.
func TestNotificationsSurviveAKill(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	var mu sync.Mutex
	var ids []string
	asked, hang, answers := make(chan struct{}, 10), make(chan struct{}), false
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		mu.Lock()
		ids = append(ids, r.Header.Get("webhook-id"))
		answer := answers
		mu.Unlock()
		if !answer {
			asked <- struct{}{}
			<-hang
		}
	}))
	defer receiver.Close()
	k := newKillable(t, map[string]string{"set.yaml": strings.Replace(twoWaiting, "URL", receiver.URL, 1)})
	run := k.start("run", "--wait", "--run-id", "r", "set.yaml")
	testenv.Receive(t, asked)
	s := k.open()
	if !testenv.Eventually(func() bool {
		left, err := s.Undelivered(context.Background(), "r")
		return err == nil && len(left) == 2
	}) {
		t.Fatal("there are not two notifications")
	}
	k.kill(run)
	close(hang)
	mu.Lock()
	answers = true
	mu.Unlock()
	k.ended(k.start("executor", "--once"), 0)
	mu.Lock()
	defer mu.Unlock()
	if len(ids) != 3 || !slices.Contains(ids[1:], ids[0]) || ids[1] == ids[2] {
		t.Errorf("got %q\n%s", ids, testenv.ReadFile(t, k.dir, "output"))
	}
	if left, err := s.Undelivered(context.Background(), "r"); err != nil || len(left) > 0 {
		t.Errorf("left %+v, %v", left, err)
	}
}

const jobThatAnswers = `version: "1.0"
id: s
name: S
agent: {type: function, command: [sh, agent.sh]}
jobs: {P: {source: exec, command: [sh, job.sh]}}
evaluations: [{id: a, name: A, inputs: {}, evaluationCriterias: {}}]
`

const agentThatEchoes = `in=$(cat)
case $in in
*'"resume":null'*) echo '{"__interrupt__": {"name": "P", "input_arguments": {}}}' ;;
*) url=$(cat url); echo "{\"url\": \"$url\", \"in\": \"$(echo "$in" | sed 's/.*"total":\([0-9]*\).*/\1/')\"}" ;;
esac
`

// The job waits until it is let go, so that it is seen to go on after it has answered.
const slowJob = `trap 'echo cancelled >cancelled; exit 1' TERM
printf %s "$EVALRUN_WEBHOOK_URL" >url.tmp; mv url.tmp url; echo "my URL is $EVALRUN_WEBHOOK_URL" >&2
until [ -e go ]; do sleep 0.05; done
echo '{"total": 1}' ; echo done >done
`

// A job has the URL of its trigger, which a server that was killed and started again still knows;
// what it posts resumes the rollout, and the job goes on. Nothing that is written has the URL in it.
func TestAWebhookSurvivesAKill(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	k := newKillable(t, map[string]string{"set.yaml": jobThatAnswers, "agent.sh": agentThatEchoes, "job.sh": slowJob})
	s := k.open()
	set, err := runner.Load([]string{filepath.Join(k.dir, "set.yaml")}, runner.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(t.Context(), set, runner.CreateOptions{RunID: "r"}); err != nil {
		t.Fatal(err)
	}
	server := k.start("serve", "--listen", "127.0.0.1:0")
	url := testenv.WhenWritten(t, filepath.Join(k.dir, "url"))
	post := func(url, body string) int {
		resp, err := http.Post(url, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	if status := post(url+"A", `{"total": 2}`); status != http.StatusNotFound {
		t.Errorf("a wrong token: %d", status)
	}
	k.kill(server)
	address := regexp.MustCompile(`^http://([^/]+)/`).FindStringSubmatch(url)[1]
	server = k.start("serve", "--listen", address)
	if !testenv.Eventually(func() bool {
		resp, err := http.Post(url+"A", "application/json", nil)
		if err == nil {
			_ = resp.Body.Close()
		}
		return err == nil
	}) {
		t.Fatal("the server did not come back")
	}
	if first, second := post(url, `{"total": 42}`), post(url, `{"total": 43}`); first != http.StatusAccepted || second != http.StatusOK {
		t.Errorf("got %d, then %d", first, second)
	}
	if !testenv.Eventually(func() bool {
		run, err := s.Find(context.Background(), "r")
		return err == nil && run.Final
	}) {
		t.Fatalf("the run did not go on\n%s", testenv.ReadFile(t, k.dir, "output"))
	}
	var document struct {
		EvaluationSetResults []struct {
			AgentExecutionOutput struct {
				Result struct{ Output map[string]string }
			}
		}
	}
	if !testenv.Eventually(func() bool {
		data, err := os.ReadFile(filepath.Join(k.dir, ".evalrun", "runs", "r", "results.json"))
		return err == nil && json.Unmarshal(data, &document) == nil && len(document.EvaluationSetResults) == 1 &&
			document.EvaluationSetResults[0].AgentExecutionOutput.Result.Output["in"] != ""
	}) {
		t.Fatal("there is no results document")
	}
	output := document.EvaluationSetResults[0].AgentExecutionOutput.Result.Output
	if output["in"] != "42" || !strings.HasSuffix(output["url"], "/v1/hooks/[redacted:EVALRUN_WEBHOOK_URL]") {
		t.Errorf("the agent's output is %q", output)
	}
	if err := os.WriteFile(filepath.Join(k.dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	testenv.WhenWritten(t, filepath.Join(k.dir, "done"))
	if _, err := os.Stat(filepath.Join(k.dir, "cancelled")); err == nil {
		t.Error("the job was cancelled")
	}
	if status := post(url, `1`); status != http.StatusOK {
		t.Errorf("after the end: %d", status)
	}
	if err := server.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	k.ended(server, 0)
	token := url[strings.LastIndex(url, "/")+1:]
	err = filepath.WalkDir(k.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || d.Name() == "url" {
			return err
		}
		data, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) { // the job's own process writes its result under another name at first
			return nil
		}
		if strings.Contains(string(data), token[20:]) && d.Name() != "store.db" && d.Name() != "store.db-wal" { // an agent's raw output is there
			t.Errorf("%s has the URL", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
