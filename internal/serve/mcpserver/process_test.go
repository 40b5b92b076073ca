package mcpserver_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/testenv"
)

// programDir is where the programs are that these tests start, and programs builds them, once.
var (
	programDir string
	programs   = sync.OnceValue(func() error { return testenv.Build(programDir, testenv.Evalrun, testenv.ACPAgent) })
)

func TestMain(m *testing.M) {
	var err error
	if programDir, err = os.MkdirTemp("", "mcpserver-*"); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(programDir)
	os.Exit(code)
}

// serviceProcess is a process of evalrun serve, which may be killed and started again.
type serviceProcess struct {
	*testing.T
	dir, address, token string
	cmd                 *exec.Cmd
}

func startService(t *testing.T) *serviceProcess {
	t.Helper()
	if err := programs(); err != nil {
		t.Fatal(err)
	}
	p := &serviceProcess{T: t, dir: t.TempDir(), address: "127.0.0.1:0"}
	writeConfig(t, p.dir)
	p.token = strings.TrimSpace(p.run(0, "token", "new", "--scope", "admin"))
	p.start()
	t.Cleanup(p.kill)
	return p
}

// run runs evalrun in the service's folder, and returns what it prints on stdout.
func (p *serviceProcess) run(code int, args ...string) string {
	p.Helper()
	cmd := exec.Command(filepath.Join(programDir, "evalrun"), args...)
	cmd.Dir = p.dir
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != code {
		p.Fatalf("evalrun %v: %v\n%s", args, err, &stderr)
	}
	return stdout.String()
}

func (p *serviceProcess) start() {
	p.Helper()
	p.cmd = exec.Command(filepath.Join(programDir, "evalrun"), "serve", "--config", "serve.yaml", "--listen", p.address)
	p.cmd.Dir = p.dir
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		p.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		p.Fatal(err)
	}
	serving := make(chan string, 1)
	go func() { // it ends with the process
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			if _, address, ok := strings.Cut(lines.Text(), "serving http://"); ok {
				serving <- address
			}
		}
		close(serving)
	}()
	if p.address = testenv.Receive(p.T, serving, "the address"); p.address == "" {
		p.Fatal("it does not serve")
	}
}

func (p *serviceProcess) kill() {
	_ = p.cmd.Process.Kill() // one that has ended is dead
	_ = p.cmd.Wait()         // it was killed
}

// A task survives its server: the client goes on with its session, or with none, and gets the
// result of a run that another process has ended.
func TestATaskSurvivesItsServer(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	p := startService(t)
	everything := "{" + knowsTasks + "," + canBeAsked + "}"
	legacy := connect(t, target("http://"+p.address, p.token), mcp.Legacy, everything)
	modern := connect(t, target("http://"+p.address, p.token), mcp.Modern, everything)
	runs := legacy.Task("run_eval_set", `{"evalSet":"waits"}`)
	suspended := modern.Task("run_eval_set", `{"evalSet":"suspends","idempotencyKey":"k"}`)
	asks := legacy.Task("run_eval_set", `{"evalSet":"asks"}`)
	trigger := openTrigger(modern, suspended)
	openTrigger(modern, asks)

	p.kill()
	p.start()

	for _, c := range []interface {
		Get(id string) jsonobj.Object
	}{legacy, modern} {
		if got := c.Get(runs).Text("status"); got != "working" {
			t.Error(got)
		}
	}
	if again := modern.Task("run_eval_set", `{"evalSet":"suspends","idempotencyKey":"k"}`); again != suspended {
		t.Error("there is another run for one key")
	}
	tool(modern, "deliver", `{"triggerId":"`+trigger+`","payload":{}}`)
	legacy.Note(suspended, "completed") // of which its session was told nothing, but its caller has it
	write(t, filepath.Join(p.dir, "waits", "go"), "")
	for id, text := range map[string]string{runs: `"answer":"yes"`, suspended: `"answer":"yes"`, asks: `"approved":true`} {
		for _, c := range []interface {
			Result(id string) (string, bool, error)
		}{legacy, modern} {
			result, isError, err := c.Result(id)
			if isError || err != nil {
				t.Fatal(isError, err)
			}
			holds(t, result, `"status":"successful"`)
		}
		holds(t, string(tool(modern, "get_results", `{"runId":"`+id+`","cursor":"others-0"}`).JSON())+string(tool(modern, "get_results", `{"runId":"`+id+`"}`).JSON()), text)
	}
}

// An agent evaluates another agent: it calls run_eval_set through the gateway, is suspended on the
// task as the run takes long, and resumed with the results.
func TestAnAgentEvaluatesAnotherAndIsSuspended(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	p := startService(t)
	own := filepath.Join(p.dir, "outer")
	write(t, filepath.Join(own, "servers.json"), fmt.Sprintf(`{"mcpServers":{"evalrun":{"type":"http","url":"http://%s/mcp","headers":{"Authorization":"Bearer ${SERVICE_TOKEN}"}}}}`, p.address))
	write(t, filepath.Join(own, "set.json"), fmt.Sprintf(`{"version":"1.0","id":"outer","name":"Outer","agent":{"type":"acp","name":"judge","command":[%q]},"limits":{"softWait":"200ms"},
	 "evaluators":[{"version":"1.0","id":"says","evaluatorTypeId":"uipath-contains","evaluatorConfig":{"name":"says","targetOutputKey":"content"}}],
	 "evaluations":[{"id":"one","name":"One","inputs":{"prompt":"[[CALL evalrun.run_eval_set {\"evalSet\":\"waits\"}]]"},"evaluationCriterias":{"says":{"searchText":"finished"}}}]}`,
		filepath.Join(programDir, "acp-agent")))
	write(t, filepath.Join(own, "env"), "SERVICE_TOKEN="+p.token+"\n")
	base := []string{"--store", "outer/.evalrun", "--env-file", "outer/env"}
	p.run(75, append([]string{"run", "-q", "--isolation", "process", "--run-id", "o", "--mcp-config", "outer/servers.json", "outer/set.json"}, base...)...)

	var shown struct{ EvaluationSetResults []json.RawMessage }
	if err := json.Unmarshal([]byte(p.run(0, "show", "--json", "o", "--store", "outer/.evalrun")), &shown); err != nil || len(shown.EvaluationSetResults) != 1 {
		t.Fatal(err, shown)
	}
	holds(t, string(shown.EvaluationSetResults[0]), `"trigger_type": "MCP_TASK"`)
	c := connect(t, target("http://"+p.address, p.token), mcp.Modern, `{}`)
	runs := idsOf(t, tool(c, "list_runs", `{}`).Get("runs"), "runId")
	if len(runs) != 1 {
		t.Fatalf("%d runs were started", len(runs))
	}
	if runs[0][14] != '5' { // else it is one of its own
		t.Errorf("the run %s has no key, by which the gateway could call again", runs[0])
	}
	write(t, filepath.Join(p.dir, "waits", "go"), "")
	p.run(0, append([]string{"resume", "-q", "--wait", "o"}, base...)...)
	results := p.run(0, "show", "--json", "o", "--store", "outer/.evalrun")
	holds(t, results, runs[0], `"score": 1`)
	if strings.Contains(results, p.token) {
		t.Error("the token is in the results")
	}
	if again := idsOf(t, tool(c, "list_runs", `{}`).Get("runs"), "runId"); len(again) != 1 {
		t.Errorf("%d runs were started", len(again))
	}
}
