package images

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/container"
	"github.com/evalrun/evalrun/internal/sandbox"
	"github.com/evalrun/evalrun/internal/testenv"
)

// withStore makes a task that has a service beside it: a store with a volume of the file, and one of
// its image.
func withStore(t *testing.T, w way, solution, test string) *task {
	t.Helper()
	testenv.NeedPodman(t)
	testenv.Need(t, testenv.Podman, container.CanCompose(t.Context()))
	const ask = "ask() { exec 3<>/dev/tcp/store/8000; echo \"$*\" >&3; read -r answer <&3; exec 3>&-; echo \"$answer\"; }\n"
	k := newTask(t, w, plain+"[environment]\nnetwork_mode = \"no-network\"\n", "WORKDIR /app\n", ask+solution, ask+test)
	if err := os.Mkdir(k.path("environment/store"), 0o755); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-ldflags=-s -w", "-o", k.path("environment/store/store"), "testdata/store/main.go")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	k.write("environment/store/Dockerfile", "FROM scratch\nCOPY store /store\nVOLUME /more\nENTRYPOINT [\"/store\"]\n")
	k.write("environment/.dockerignore", "store\n")
	k.write("environment/docker-compose.yaml", `services:
  main:
    environment: {GREETING: hello}
    ports: ["8080:8080"]
    depends_on: {store: {condition: service_healthy}}
  store:
    build: ./store
    volumes: ["data:/data"]
    healthcheck: {test: ["CMD", "/store", "check"], interval: 100ms, retries: 100}
volumes:
  data: {}
`)
	return k
}

// nothingOfPodman finds containers, networks and volumes of evalrun. Only tests that run alone may
// look for them.
func nothingOfPodman(t *testing.T, after string) {
	t.Helper()
	for _, kind := range []string{"ps -a", "network ls", "volume ls"} {
		out, err := exec.Command("podman", append(strings.Fields(kind), "-q", "--filter", "label=dev.evalrun.rollout")...).CombinedOutput()
		if err != nil || len(out) > 0 {
			t.Errorf("after %s podman has left of %s: %v\n%s", after, kind, err, out)
		}
	}
}

// Given a task with a service, then isolation "image" runs it in podman; main has what the file gives
// it, the agent reaches the service and nothing else, and the tests find it as the agent left it.
func TestServicesBesideATask(t *testing.T) {
	k := withStore(t, asImage, `[ $GREETING = hello ]; [ "$(ask put first)" = ok ]; ! (exec 4<>/dev/tcp/1.1.1.1/80) 2>/dev/null`, `[ "$(ask puts)" = 1 ]; [ "$(ask words)" = first ]`)
	out := k.evalrun(0, "run", "-o", "results.json", "--agent", "oracle", "task")
	if r := k.results(); r.Score == nil || *r.Score != 1 || r.Isolation != sandbox.IsolationPodman || r.Environment != "image" {
		t.Fatalf("%+v\n%s\n%s", r, out, k.log())
	}
	nothingOfPodman(t, "a run")
	for _, args := range [][]string{{"images", "list", "--json"}, {"images", "gc", "--dry-run", "--json"}} {
		if list := k.evalrun(0, args...); strings.Count(list, "localhost/evalrun-service:") != 1 {
			t.Errorf("%v has not the image of the service, which nobody needs any more: %s", args, list)
		}
	}
}

// Given an agent that is suspended, killed and gone on with by another process, then its services are
// started again with what is in their volumes, and nothing is left of those that were killed.
func TestServicesOverASuspension(t *testing.T) {
	if testing.Short() {
		t.Skip("podman-compose sleeps a second at each of its steps")
	}
	k := withStore(t, asPodman, "", `echo "$(ask puts) $(ask words) $(ask more)"; [ "$(ask puts)" = 0 ]; [ "$(ask words)" = once ]; [ "$(ask more)" = once ]`)
	k.write("instruction.md", "[[RUN bash -c 'exec 3<>/dev/tcp/store/8000; echo put once >&3; read -r answer <&3']] [[ASK execute go {\"n\":1}]] [[SAY first]]\n")
	k.write("../agent.json", `{"name": "a", "type": "acp", "command": ["acp-agent"], "permissions": "suspend"}`)
	k.env = []string{"EVALRUN_LEASE=900ms"}
	run := []string{"run", "--isolation", "podman", "--run-id", "r", "-o", "results.json", "--agent", "agent.json", "task"}
	k.killWithServices(run...)
	k.evalrun(75, run...)
	nothingOfPodman(t, "a suspension")
	if list := k.evalrun(0, "images", "gc", "--dry-run", "--json"); strings.Contains(list, "localhost/evalrun-service:") {
		t.Error("the image of the service of a suspended rollout would be removed:", list)
	}
	var triggers []struct {
		ID string `json:"triggerId"`
	}
	if err := json.Unmarshal([]byte(k.evalrun(0, "triggers", "--json", "r")), &triggers); err != nil || len(triggers) != 1 {
		t.Fatalf("%v: %d triggers", err, len(triggers))
	}
	k.evalrun(0, "approve", triggers[0].ID)
	k.killWithServices("resume", "-o", "results.json", "r")
	k.evalrun(0, "run", "--wait", "--isolation", "podman", "--run-id", "r", "-o", "results.json", "--agent", "agent.json", "task")
	if r := k.results(); r.Score == nil || *r.Score != 1 {
		t.Errorf("%+v\n%s", r, k.log())
	}
	nothingOfPodman(t, "the end")
}

// killWithServices runs evalrun and kills it as soon as a service runs.
func (k *task) killWithServices(args ...string) {
	k.t.Helper()
	cmd := k.command(args...)
	if err := cmd.Start(); err != nil {
		k.t.Fatal(err)
	}
	deadline := time.Now().Add(2 * time.Minute)
	for running := ""; !strings.Contains(running, "store"); { // podman tells nobody
		out, err := exec.Command("podman", "ps", "--filter", "label=dev.evalrun.rollout", "--format", "{{.Names}}").CombinedOutput()
		if running = string(out); err != nil || time.Now().After(deadline) {
			k.t.Fatalf("%v: %s", err, out)
		}
	}
	_ = cmd.Process.Kill() // it may have ended
	_ = cmd.Wait()
}

// What of a compose file cannot be run is said before anything runs.
func TestComposeFilesThatCannotRun(t *testing.T) {
	t.Parallel()
	k := withStore(t, asImage, "", "")
	file := k.path("environment/docker-compose.yaml")
	k.write("environment/docker-compose.yaml", strings.Replace(testenv.ReadFile(t, filepath.Dir(file), filepath.Base(file)), "build: ./store", "build: ./store\n    privileged: true", 1))
	for _, args := range [][]string{{"validate", "task"}, {"run", "-o", "results.json", "--agent", "oracle", "task"}} {
		code := map[string]int{"validate": 0, "run": 3}[args[0]]
		if out := k.evalrun(code, args...); !strings.Contains(out, "environment/docker-compose.yaml: 8:17: services.store.privileged: privileged is refused") {
			t.Errorf("%v: %s", args, out)
		}
	}
	// A daemon's containers have no services yet.
	d := newTask(t, asDocker, plain, "", "", "")
	d.write("environment/docker-compose.yaml", "services: {}\n")
	if out := d.evalrun(3, "run", "-o", "results.json", "--isolation", d.isolation, "--agent", "oracle", "task"); !strings.Contains(out, "services take --isolation podman") {
		t.Errorf("docker: %s", out)
	}
	bwrap, err := exec.LookPath("bwrap")
	if err == nil {
		err = errors.Join(os.Mkdir(filepath.Join(k.dir, "bin"), 0o755), os.Symlink(bwrap, filepath.Join(k.dir, "bin", "bwrap")))
	}
	if err != nil {
		t.Fatal(err)
	}
	k.env = []string{"PATH=" + filepath.Join(k.dir, "bin")}
	k.write("environment/docker-compose.yaml", "services: {}\n")
	if out := k.evalrun(3, "run", "-o", "results.json", "--agent", "oracle", "task"); !strings.Contains(out, "podman, which is not installed") {
		t.Errorf("%s", out)
	}
	k.evalrun(3, "run", "-o", "results.json", "--isolation", "process", "--agent", "oracle", "task")
}
