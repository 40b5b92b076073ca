package lab

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/docker"
	"github.com/evalrun/evalrun/internal/testenv"
)

// TestAgentsInDocker has real agents work in containers of a daemon that shares neither files nor a
// network with this machine.
func TestAgentsInDocker(t *testing.T) {
	testenv.NeedLong(t)
	d := daemonWithBase(t)
	for _, name := range []string{"opencode", "claude", "gemini", "codex", "qwen"} {
		t.Run(name, func(t *testing.T) { d.drive(t, name) })
	}
}

// baseOfDaemon is the name of the base image in the daemon.
const baseOfDaemon = "evalrun-lab:base"

// daemon is a Docker daemon that has the base image.
type daemon struct {
	*docker.Client
	host string
}

func daemonWithBase(t *testing.T) daemon {
	t.Helper()
	testenv.NeedDocker(t)
	needBaseImage(t)
	node(t)
	program, err := build()
	if err == nil {
		err = testenv.Build(filepath.Dir(program), testenv.Inside)
	}
	if err != nil {
		t.Fatal(err)
	}
	remote, err := testenv.StartDocker(testenv.DockerRemote)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := remote.End(); err != nil {
			t.Error(err)
		}
	})
	if err := remote.Import(t.Context(), filepath.Join(filepath.Dir(os.Getenv("CONTAINERS_STORAGE_CONF")), "trixie.tar"), baseOfDaemon); err != nil {
		t.Fatal(err)
	}
	client, err := docker.OpenAt(t.Context(), docker.Endpoint{Host: remote.Host})
	if err != nil {
		t.Fatal(err)
	}
	return daemon{client, remote.Host}
}

// containers are the containers of evalrun's in the daemon.
func (d daemon) containers(t *testing.T) []string {
	t.Helper()
	found, err := d.List(t.Context(), "dev.evalrun.rollout")
	if err != nil {
		t.Fatal(err)
	}
	return slices.Collect(maps.Keys(found))
}

// drive has an agent use servers that run in its container, ask for a permission, and wait for a job.
// evalrun is killed while the agent works, before the permission and after the job, and what it leaves
// in the daemon is removed, once by the next evalrun and once by somebody else. Nothing is there while
// the rollout is suspended, and the tests find what a server has left in the image before that.
func (d daemon) drive(t *testing.T, name string) {
	t.Setenv("DOCKER_HOST", d.host)
	t.Setenv("EVALRUN_LEASE", "5s")
	m, j := startModel(t), startJobs(t)
	m.asks = true
	submit := fmt.Sprintf(`[[CALL submit_answer {"answer":%q}]]`, secretOf("what is in the vault"))
	const start = `[[CALL run_process {"process":"invoice","arguments":{"ms":3600000,"info":"none","say":"\u005b\u005bSAY I am done\u005d\u005d"}}]]`
	dir := copyTask(t, "mcp", "The codeword is petunia. "+submit+" [[SAY first turn over]]")
	config := testenv.ReadFile(t, dir, "mcp", "task.toml")
	for file, content := range map[string]string{
		"task.toml":              strings.Replace(config, "timeout_sec = 300", "timeout_sec = 3000", 1), // which begins with a copy of the agent
		"environment/Dockerfile": "FROM " + baseOfDaemon + "\nWORKDIR /app\nCOPY server.py /app/\n",
		"tests/test.sh": "echo 0 >/logs/verifier/reward.txt; grep -q " + secretOf("what is in the vault") +
			" /app/answer.txt && [ -s /logs/artifacts/notes.jsonl ] && ! echo x >/run/evalrun/host/x && echo 1 >/logs/verifier/reward.txt\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, "mcp", file), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	more := map[string]any{"permissions": "suspend"}
	maps.Copy(more, asking[name].more)
	run := slices.Concat([]string{"run", "--isolation", "docker", "--run-id", "r", "-o", "results.json", "--agent", m.agentEntry(dir, name, more), "--eval-id", "evalrun/mcp"},
		j.evalSet(dir, "nothing", "nothing"), []string{"mcp"})

	suspended := func(r rollout, kind string) {
		t.Helper()
		if left := d.containers(t); r.Status != "suspended" || r.AgentExecutionOutput.Result.Trigger.Type != kind || len(left) > 0 {
			t.Fatalf("%+v, want a suspension on a %s; containers: %v", r, kind, left)
		}
	}
	killed(t, dir, func() bool { return len(m.requests()) > 0 }, run...)
	left := d.containers(t)
	evalrun(t, dir, 75, run...)
	r := results(t, dir)
	suspended(r, "TASK")
	t.Logf("killed in the first segment, with the containers %v", left)
	nothingLeft(t, dir, r)

	approve := func(calls string) {
		t.Helper()
		evalrun(t, dir, 0, "approve", r.AgentExecutionOutput.Result.Trigger.TriggerID, "--reason", "go ahead "+calls+" [[SAY turn over]]")
		evalrun(t, dir, 75, "resume", "-o", "results.json", "r")
		r = results(t, dir)
	}
	approve(submit + " " + start)
	if r.AgentExecutionOutput.Result.Trigger.Type == "TASK" { // it asks for every tool
		suspended(r, "TASK")
		approve(start)
	}
	suspended(r, "JOB")
	nothingLeft(t, dir, r)

	j.passed.Store(int64(time.Hour)) // however long the agent has taken, its job was not done
	before := len(m.requests())
	killed(t, dir, func() bool { return len(m.requests()) > before }, "executor")
	left = d.containers(t)
	for _, id := range left {
		if err := d.Remove(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	t.Logf("killed in the last segment, with the containers %v", left)
	evalrun(t, dir, 0, "resume", "--wait", "--wait-timeout", "5m", "-o", "results.json", "r")
	r = results(t, dir)
	if r.Score == nil || *r.Score != 1 || r.Isolation != "docker" {
		t.Errorf("score %v in %s, want 1 in docker: %+v", r.Score, r.Isolation, r)
	}
	if j.started() != 1 {
		t.Errorf("%d jobs were started", j.started())
	}
	if tools := calls(t, dir, "notes"); fmt.Sprint(tools) != "[submit_answer]" {
		t.Errorf("the server was called %v", tools)
	}
	history := m.requests()[before].history()
	for _, want := range []string{"petunia", "go ahead", "has started a job"} {
		if !strings.Contains(history, want) {
			t.Errorf("the model's first request after the job lacks %q:\n%s", want, history)
		}
	}
	if left := d.containers(t); len(left) > 0 {
		t.Errorf("containers are left: %v", left)
	}
	t.Logf("servers: %v; resumed by: %v", r.MCPServers, r.ResumedBy)
	nothingLeft(t, dir, r)
	keyIsNowhere(t, dir)
}
