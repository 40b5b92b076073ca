package images

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/container"
	"github.com/evalrun/evalrun/internal/docker"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/sandbox"
	"github.com/evalrun/evalrun/internal/testenv"
)

// withStore makes a task that has a service beside it: a store with a volume of the file, and one of
// its image.
func withStore(t *testing.T, w way, solution, test string) *task {
	t.Helper()
	if w != asDocker {
		testenv.NeedPodman(t)
		testenv.Need(t, testenv.Podman, container.CanCompose(t.Context()))
	}
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

// noServices finds containers, networks and volumes of evalrun. Only tests that run alone may look for
// them.
func (k *task) noServices(after string) {
	k.t.Helper()
	if k.way == asDocker {
		c := client(k.t)
		for kind, list := range map[string]func(context.Context, string) (map[string]map[string]string, error){
			"container": c.List, "network": c.ListNetworks, "volume": c.ListVolumes} {
			if left, err := list(k.t.Context(), "dev.evalrun.rollout"); err != nil || len(left) > 0 {
				k.t.Errorf("after %s the daemon has left of each %s: %v, %v", after, kind, left, err)
			}
		}
		return
	}
	for _, kind := range []string{"ps -a", "network ls", "volume ls"} {
		out, err := exec.Command("podman", append(strings.Fields(kind), "-q", "--filter", "label=dev.evalrun.rollout")...).CombinedOutput()
		if err != nil || len(out) > 0 {
			k.t.Errorf("after %s podman has left of %s: %v\n%s", after, kind, err, out)
		}
	}
}

// Given a task with a service, then isolation "image" runs it in podman; main has what the file gives
// it, the agent reaches the service and nothing else, and the tests find it as the agent left it.
func TestServicesBesideATask(t *testing.T) {
	testServicesBesideATask(t, asImage, sandbox.IsolationPodman)
}

func testServicesBesideATask(t *testing.T, w way, isolation string) {
	k := withStore(t, w, `[ $GREETING = hello ]; [ "$(ask put first)" = ok ]; ! (exec 4<>/dev/tcp/1.1.1.1/80) 2>/dev/null`, `[ "$(ask puts)" = 1 ]; [ "$(ask words)" = first ]`)
	out := k.evalrun(0, "run", "-o", "results.json", "--isolation", k.isolation, "--agent", "oracle", "task")
	if r := k.results(); r.Score == nil || *r.Score != 1 || r.Isolation != isolation || r.Environment != "image" {
		t.Fatalf("%+v\n%s\n%s", r, out, k.log())
	}
	k.noServices("a run")
	if w == asDocker {
		return
	}
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
	testServicesOverASuspension(t, asPodman)
}

func testServicesOverASuspension(t *testing.T, w way) {
	k := withStore(t, w, "", `echo "$(ask puts) $(ask words) $(ask more)"; [ "$(ask puts)" = 0 ]; [ "$(ask words)" = once ]; [ "$(ask more)" = once ]`)
	k.write("instruction.md", "[[RUN bash -c 'exec 3<>/dev/tcp/store/8000; echo put once >&3; read -r answer <&3']] [[ASK execute go {\"n\":1}]] [[SAY first]]\n")
	k.write("../agent.json", `{"name": "a", "type": "acp", "command": ["acp-agent"], "permissions": "suspend"}`)
	k.env = append(k.env, "EVALRUN_LEASE=900ms")
	run := []string{"run", "--isolation", k.isolation, "--run-id", "r", "-o", "results.json", "--agent", "agent.json", "task"}
	k.killWithServices(run...)
	k.evalrun(75, run...)
	k.noServices("a suspension")
	if list := k.evalrun(0, "images", "gc", "--dry-run", "--json"); w != asDocker && strings.Contains(list, "localhost/evalrun-service:") {
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
	k.evalrun(0, "run", "--wait", "--isolation", k.isolation, "--run-id", "r", "-o", "results.json", "--agent", "agent.json", "task")
	if r := k.results(); r.Score == nil || *r.Score != 1 {
		t.Errorf("%+v\n%s", r, k.log())
	}
	k.noServices("the end")
}

// The services of a compose file run in a Docker daemon as they do in podman.
func TestServicesInADaemon(t *testing.T) {
	if asDocker.bare() {
		k := withStore(t, asDocker, "", "")
		if out := k.evalrun(3, "run", "--isolation", k.isolation, "--agent", "oracle", "task"); !strings.Contains(out, "services need a Docker daemon with its own network (bridge)") {
			t.Errorf("%s", out)
		}
		return
	}
	for name, test := range map[string]func(t *testing.T){
		"beside a task":     func(t *testing.T) { testServicesBesideATask(t, asDocker, sandbox.IsolationDocker) },
		"over a suspension": func(t *testing.T) { testServicesOverASuspension(t, asDocker) },
		"with all its keys": keysOfServices,
		"that do not start": servicesThatDoNotStart,
		"without podman":    servicesWithoutPodman,
		"lead nowhere":      servicesLeadNowhere,
	} {
		t.Run(name, test)
	}
}

// servicesWithoutPodman has a machine with bubblewrap and a daemon: what has no services runs there without it.
func servicesWithoutPodman(t *testing.T) {
	testenv.Need(t, testenv.Bwrap, sandbox.ImageAvailable())
	k := withStore(t, asDocker, `[ "$(ask put first)" = ok ]`, `[ "$(ask words)" = first ]`)
	k.env = append(k.env, "PATH="+onlyBwrap(t))
	out := k.evalrun(0, "run", "-o", "results.json", "--agent", "oracle", "task")
	if r := k.results(); r.Score == nil || *r.Score != 1 || r.Isolation != sandbox.IsolationDocker {
		t.Errorf("%+v\n%s", r, out)
	}
	k.noServices("a run")
}

// onlyBwrap is a folder for PATH that has bubblewrap alone.
func onlyBwrap(t *testing.T) string {
	t.Helper()
	bwrap, err := exec.LookPath("bwrap")
	bin := t.TempDir()
	if err == nil {
		err = os.Symlink(bwrap, filepath.Join(bin, "bwrap"))
	}
	if err != nil {
		t.Fatal(err)
	}
	return bin
}

// servicesLeadNowhere has a program of the daemon's machine, which listens to all its addresses: a task without a
// network reaches the service beside it, and not that program, which would be at the gateway of their network.
func servicesLeadNowhere(t *testing.T) {
	const gateway = `while read -r _ to by _; do if [ $to = 00000000 ]; then
	echo $((16#${by:6:2})).$((16#${by:4:2})).$((16#${by:2:2})).$((16#${by:0:2}))
fi; done </proc/net/route`
	k := withStore(t, asDocker, "[ \"$(ask put first)\" = ok ]\nat=$("+gateway+")\n[ -n \"$at\" ]; ! (exec 4<>/dev/tcp/$at/8000)", "")
	var archive bytes.Buffer
	a := tar.NewWriter(&archive)
	if err := errors.Join(docker.AddTree(a, k.path("environment/store/Dockerfile"), "Dockerfile", docker.Root),
		docker.AddTree(a, k.path("environment/store/store"), "store", docker.Root), a.Close()); err != nil {
		t.Fatal(err)
	}
	c := client(t)
	image, err := c.Build(t.Context(), &archive, docker.Build{Dockerfile: "Dockerfile"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	machine := docker.Spec{Image: image}
	machine.HostConfig.NetworkMode = container.NetworkHost
	id, err := c.Create(t.Context(), "machine", machine)
	if err == nil {
		t.Cleanup(func() {
			if err := c.Remove(context.WithoutCancel(t.Context()), id); err != nil {
				t.Error(err)
			}
		})
		err = c.Start(t.Context(), id)
	}
	if err != nil {
		t.Fatal(err)
	}
	k.passes()
}

// keysOfServices has a service whose compose file names whatever the daemon has to be told in words of its own.
func keysOfServices(t *testing.T) {
	k := newTask(t, asDocker, plain+"[environment]\nnetwork_mode = \"public\"\n[verifier]\nnetwork_mode = \"no-network\"\n", "RUN [\"/bin/bash\", \"-c\", \"mkdir /shared\"]\n",
		`[[ $(</proc/net/dev) = *eth2* ]]; echo of main >/shared/main`, `
[[ $(</proc/net/dev) = *eth1* && $(</proc/net/dev) != *eth2* ]]
until [ -e /shared/seen ]; do sleep 0.1; done
cat /shared/report
want() { [ "$(cat /shared/report)" = "$1" ]; }
want "argument of the build: an argument
words: two words, three
user 1234:4321 in /work on the-host
variable value, of the image
memory 67108864, processes 2048
beside: a text
volume: of the image 0:0 711
tmpfs yes, root read-only"`)
	k.write("environment/folder/text", "a text\n")
	k.write("environment/service/Dockerfile", `FROM scratch AS first
COPY root /
FROM first AS wanted
ARG ARGUMENT
ENV OF_IMAGE="of the image"
RUN ["/bin/bash", "-c", "echo argument of the build: $ARGUMENT >/built; mkdir /kept /work /covered; echo of the image >/kept/own; chmod 711 /kept"]
VOLUME /kept /covered
FROM wanted
ENTRYPOINT ["/bin/false"]
`)
	k.write("environment/service/report.sh", `#!/bin/bash
{
cat /built
echo "words: $1, $2"
echo "user $(id -u):$(id -g) in $PWD on $(cat /proc/sys/kernel/hostname)"
echo "variable $NAMED, $OF_IMAGE"
memory=$(cat /sys/fs/cgroup/memory.max 2>/dev/null || cat /sys/fs/cgroup/memory/memory.limit_in_bytes)
pids=$(cat /sys/fs/cgroup/pids.max 2>/dev/null || cat /sys/fs/cgroup/pids/pids.max)
echo "memory $memory, processes $pids"
echo "beside: $(cat /covered/text)"
echo "volume: $(cat /kept/own) $(stat -c '%u:%g %a' /kept)"
echo "tmpfs $([ -w /scratch ] && echo yes), root $(echo x 2>/dev/null >/work/x || echo read-only)"
} >/shared/report 2>&1
until [ -e /shared/main ]; do sleep 0.1; done
cat /shared/main >/shared/seen
exec sleep 1000
`)
	if out, err := exec.Command("cp", "-a", k.path("environment/root"), k.path("environment/service/root")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	k.write("environment/.dockerignore", "service\n")
	k.write("environment/docker-compose.yaml", `services:
  main:
    volumes: ["shared:/shared"]
    networks: [front, back]
  seed:
    build: {context: ./service, target: first}
    command: bash -c "sleep 4; chmod 777 /shared"
    volumes: ["shared:/shared"]
  all:
    build: {context: ./service, target: wanted, args: {ARGUMENT: an argument}}
    depends_on: {seed: {condition: service_completed_successfully}}
    entrypoint: ["/bin/bash", "/script/report.sh"]
    command: "'two words' three"
    user: "1234:4321"
    working_dir: /work
    hostname: the-host
    environment: {NAMED: value}
    mem_limit: 64m
    cpus: 0.5
    shm_size: 16mb
    tmpfs: ["/scratch:mode=1777"]
    init: true
    volumes: ["shared:/shared", "./folder:/covered", "./service:/script"]
    networks: {back: {}}
volumes: {shared: {}}
networks: {front: {}, back: {}}
`)
	k.passes()
	k.noServices("a run")
}

// servicesThatDoNotStart has services that fail. The message says which, and with what.
func servicesThatDoNotStart(t *testing.T) {
	for service, want := range map[string]string{
		"command: bash -c 'echo no data >&2; exit 3'\n    healthcheck: {test: \"false\", interval: 100ms, retries: 1000}": "it does not run (exited 3): no data",
		"command: sleep 1000\n    healthcheck: {test: \"echo it is broken; false\", interval: 100ms, retries: 2}":         "it is not healthy after 2 attempts, the last time: exit status 1: it is broken",
		"mem_limit: much": `mem_limit: expected a size such as 512m or 2g, got "much"`,
		"command: \"'\"":  "command: expected a command whose quotes are closed",
	} {
		k := newTask(t, asDocker, plain, "", "", "")
		k.write("environment/docker-compose.yaml", "services:\n  db:\n    build: .\n    "+service+"\n")
		k.evalrun(3, "run", "-o", "results.json", "--isolation", k.isolation, "--agent", "oracle", "task")
		if r := k.results(); r.Error == nil || r.Error.Category != string(fault.Setup) || !strings.Contains(r.Error.Message, `service "db" of docker-compose.yaml: `+want) {
			t.Errorf("%s: %+v, want %s", service, r.Error, want)
		}
		k.noServices(service)
	}
	k := newTask(t, asDocker, plain, "", "", "")
	k.write("environment/docker-compose.yaml", "services:\n  db:\n    image: localhost/evalrun-none:1\n")
	k.evalrun(3, "run", "-o", "results.json", "--isolation", k.isolation, "--agent", "oracle", "task")
	if r := k.results(); r.Error == nil || r.Error.Category != string(fault.Image) || !strings.Contains(r.Error.Message, `service "db" of docker-compose.yaml: `) {
		t.Errorf("%+v", r.Error)
	}
}

// killWithServices runs evalrun and kills it as soon as a service runs.
func (k *task) killWithServices(args ...string) {
	k.t.Helper()
	cmd := k.command(args...)
	if err := cmd.Start(); err != nil {
		k.t.Fatal(err)
	}
	deadline := time.Now().Add(2 * time.Minute)
	for !k.hasStore() { // nobody tells
		if time.Now().After(deadline) {
			k.t.Fatal("the service does not run")
		}
	}
	_ = cmd.Process.Kill() // it may have ended
	_ = cmd.Wait()
}

// hasStore reports whether the service runs.
func (k *task) hasStore() bool {
	k.t.Helper()
	if k.way != asDocker {
		out, err := exec.Command("podman", "ps", "--filter", "label=dev.evalrun.rollout", "--format", "{{.Names}}").CombinedOutput()
		if err != nil {
			k.t.Fatalf("%v: %s", err, out)
		}
		return strings.Contains(string(out), "store")
	}
	c := client(k.t)
	found, err := c.List(k.t.Context(), "com.docker.compose.project")
	for id := range found {
		if is, _ := c.Inspect(k.t.Context(), id); is.State.Running {
			return true
		}
	}
	if err != nil {
		k.t.Fatal(err)
	}
	return false
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
	k.env = []string{"PATH=" + onlyBwrap(t), "DOCKER_HOST=unix:///nothing"}
	k.write("environment/docker-compose.yaml", "services: {}\n")
	if out := k.evalrun(3, "run", "-o", "results.json", "--agent", "oracle", "task"); !strings.Contains(out, "podman, which is not installed") {
		t.Errorf("%s", out)
	}
	k.evalrun(3, "run", "-o", "results.json", "--isolation", "process", "--agent", "oracle", "task")
}
