package images

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/evalrun/evalrun/internal/container"
	"github.com/evalrun/evalrun/internal/docker"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/testenv"
)

var (
	dockerStarted bool // by a test; TestMain ends it
	startDocker   = sync.OnceValues(func() (*testenv.RemoteDocker, error) {
		dockerStarted = true
		return testenv.StartDocker(testenv.AnyDocker(testenv.DockerRemote))
	})
)

// theDaemon is the daemon of this package's tests.
func theDaemon(t testing.TB) *testenv.RemoteDocker {
	t.Helper()
	testenv.NeedDocker(t)
	d, err := startDocker()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func closeDocker() {
	if !dockerStarted {
		return
	}
	if d, err := startDocker(); err == nil {
		if err := d.End(); err != nil {
			panic(err)
		}
	}
}

// client is a client of the daemon.
func client(t testing.TB) *docker.Client {
	t.Helper()
	c, err := docker.OpenAt(t.Context(), docker.Endpoint{Host: theDaemon(t).Host})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// containers are those in the daemon that were made of the task's image, which has a label of the test.
func (k *task) containers() (ids []string) {
	k.t.Helper()
	found, err := client(k.t).List(k.t.Context(), "test="+k.t.Name())
	if err != nil {
		k.t.Fatal(err)
	}
	return slices.Collect(maps.Keys(found))
}

// waiting is a solution that waits for a file, so that a test can act meanwhile.
const waiting = "echo once >>/opt/b; while [ ! -e /opt/go ]; do sleep 0.1; done"

// Given an evalrun that is killed while its agent runs in a container, then the next process that uses
// the daemon removes the container and runs the rollout again, and removes nothing of others.
func TestKilledWithADaemon(t *testing.T) {
	t.Parallel()
	k := newTask(t, asDocker, plain, "", waiting, `[ "$(cat /opt/b)" = once ]`)
	k.env = append(k.env, "EVALRUN_LEASE=5s") // the killed process is known to be gone before that
	c := client(t)
	run := []string{"run", "--wait", "--isolation", k.isolation, "--run-id", "r", "-o", "results.json", "--agent", "oracle", "task"}
	started := func(but string) (cmd *exec.Cmd, id string) {
		cmd = k.command(run...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if !testenv.Eventually(func() bool {
			for _, one := range k.containers() {
				if one != but && runs(t, c, one, "/bin/sh", "-c", "[ -e /opt/b ]") {
					id = one
				}
			}
			return id != ""
		}) {
			t.Fatal("the agent does not run in a container")
		}
		return cmd, id
	}
	first, left := started("")
	_ = first.Process.Kill()
	_ = first.Wait()
	second, id := started(left)
	if _, err := c.Inspect(t.Context(), left); !docker.IsMissing(err) {
		t.Errorf("the container of the killed process: %v", err)
	}
	if !runs(t, c, id, "/bin/sh", "-c", ": >/opt/go") {
		t.Error("the agent could not be told to go on")
	}
	if err := second.Wait(); err != nil {
		t.Errorf("%v\n%s", err, k.log())
	}
	if r := k.results(); r.Score == nil || *r.Score != 1 {
		t.Errorf("%+v\n%s", r, k.log())
	}
	if left := k.containers(); len(left) > 0 {
		t.Errorf("containers are left: %v", left)
	}
}

// runs reports whether a program runs in a container and succeeds.
func runs(t testing.TB, c *docker.Client, id string, args ...string) bool {
	status, err := c.Run(t.Context(), id, docker.Exec{Cmd: args}, docker.Streams{Out: io.Discard, Err: io.Discard})
	return err == nil && status == 0
}

// An agent that goes on after its time, whatever it does with SIGTERM, is ended with everything that
// it has started, and its container is removed.
func TestTimeLimitInADaemon(t *testing.T) {
	t.Parallel()
	k := newTask(t, asDocker, plain+"[agent]\ntimeout_sec = 2\n", "", "trap '' TERM; while :; do sleep 0.1; done", "")
	out := k.evalrun(3, "run", "--isolation", k.isolation, "-o", "results.json", "--agent", "oracle", "task")
	if r := k.results(); r.Error == nil || r.Error.Category != string(fault.Timeout) {
		t.Errorf("%+v\n%s", r.Error, out)
	}
	if left := k.containers(); len(left) > 0 {
		t.Errorf("containers are left: %v", left)
	}
}

// agentTask is a task for an agent of ACP in a daemon's container.
func agentTask(t *testing.T, config, dockerfile, instruction, test string) *task {
	t.Helper()
	k := newTask(t, asDocker, plain+config, "WORKDIR /app\n"+dockerfile, "", test)
	k.write("instruction.md", instruction+"\n")
	k.write("../agent.json", `{"name": "a", "type": "acp", "command": ["acp-agent"], "permissions": "suspend"}`)
	return k
}

// solves runs the agent of a task, which must get the reward 1.
func (k *task) solves(more ...string) {
	k.t.Helper()
	out := k.evalrun(0, append([]string{"run", "-o", "results.json", "--isolation", k.isolation, "--agent", "agent.json", "task"}, more...)...)
	r := k.results()
	if r.Score == nil || *r.Score != 1 || r.Isolation != k.isolation {
		k.t.Fatalf("%+v\n%s\n%s", r, out, k.log())
	}
	if left := k.containers(); len(left) > 0 {
		k.t.Errorf("containers are left: %v", left)
	}
}

// Given an agent that has no network, as another user than root, then it reaches the servers behind the
// gateway from its container, has a home of its own there, and reaches nothing else.
func TestAgentInADaemon(t *testing.T) {
	t.Parallel()
	k := agentTask(t, "[agent]\nuser = \"app\"\nnetwork_mode = \"no-network\"\n", "RUN [\"/bin/bash\", \"-c\", \"mkdir -p /work && chmod 777 /work\"]\n",
		`[[CALL far.shout {"text":"hello"}]] [[RUN whoami >/work/who; stat -c %U $HOME >/work/home; echo x >$HOME/own; while read -r line; do echo "$line"; done </proc/net/dev >/work/net; ls /run/evalrun >/work/run]] [[SAY done]]`,
		`[ "$(cat /work/who)" = app ]; [ "$(cat /work/home)" = app ]; [ ! -e /home/evalrun/own ]; lines=0; while read -r line; do lines=$((lines+1)); done </work/net; [ $lines = 3 ]`)
	server := httptest.NewServer(shouting())
	t.Cleanup(server.Close)
	k.write("../mcp.json", `{"mcpServers": {"far": {"type": "http", "url": "`+server.URL+`"}}}`)
	k.solves("--mcp-config", "mcp.json")
	if said := k.files("acp.jsonl"); !strings.Contains(said, "HELLO") {
		t.Errorf("the server was not reached: %s", said)
	}
}

// shouting is a server of MCP with one tool.
func shouting() http.Handler {
	s := mcp.NewServer(&mcp.Implementation{Name: "far"}, nil)
	type in struct {
		Text string `json:"text"`
	}
	mcp.AddTool(s, &mcp.Tool{Name: "shout"}, func(_ context.Context, _ *mcp.CallToolRequest, in in) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: strings.ToUpper(in.Text)}}}, nil, nil
	})
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil)
}

// files is the text of all files of the rollouts with a name.
func (k *task) files(name string) (text string) {
	_ = filepath.WalkDir(filepath.Join(k.dir, ".evalrun/runs"), func(path string, e fs.DirEntry, err error) error { // nothing is no reason to fail
		if err == nil && e.Name() == name {
			data, _ := os.ReadFile(path)
			text += string(data)
		}
		return nil
	})
	return text
}

// The same over TCP. Nothing but the connection is shared.
func TestDaemonOverTCP(t *testing.T) {
	t.Parallel()
	k := newTask(t, asDocker, plain+"artifacts = [\"/data/v\"]\n[environment]\nmemory_mb = 200\ncpus = 0.5\n", "VOLUME /data\n", "echo v >/data/v; read -r n </sys/fs/cgroup/memory/memory.limit_in_bytes || read -r n </sys/fs/cgroup/memory.max; [ $n = 209715200 ]; read -r n </sys/fs/cgroup/pids/pids.max || read -r n </sys/fs/cgroup/pids.max; [ $n = 4096 ]", "[ $(cat /data/v) = v ]")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	passOn(t, l)
	k.env = []string{"DOCKER_HOST=tcp://" + l.Addr().String()}
	k.passes()
	if kept, _ := filepath.Glob(filepath.Join(k.dir, ".evalrun/runs/*/rollouts/*/artifacts/data/v")); len(kept) != 1 {
		t.Errorf("the artifact of a volume: %v", kept)
	}
}

// halfCloser is a connection whose directions end by themselves.
type halfCloser interface {
	net.Conn
	CloseWrite() error
}

// pass passes a connection on to a socket until both have ended.
func pass(in halfCloser, socket string) {
	defer func() { _ = in.Close() }()
	out, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return
	}
	defer func() { _ = out.Close() }()
	var back sync.WaitGroup
	back.Go(func() { _, _ = io.Copy(in, out); _ = in.CloseWrite() })
	_, _ = io.Copy(out, in)
	_ = out.CloseWrite()
	back.Wait()
}

// What an agent leaves in place of the folders that are taken out leads nowhere on this machine.
func TestHostileFilesInADaemon(t *testing.T) {
	t.Parallel()
	k := newTask(t, asDocker, plain+"artifacts = [\"/tmp/out\", \"/tmp/link\"]\n", "", "", "")
	private := filepath.Join(k.dir, "private.txt")
	if err := os.WriteFile(private, []byte("known only outside"), 0o600); err != nil {
		t.Fatal(err)
	}
	k.write("solution/solve.sh", "rm -rf /logs /tests; ln -s "+k.dir+" /logs; ln -s / /tests; mkdir /tmp/out; ln -s "+private+" /tmp/out/private; ln -s "+k.dir+" /tmp/link\n")
	k.passes()
	if left, err := filepath.Glob(filepath.Join(k.dir, "verifier")); err != nil || len(left) > 0 {
		t.Errorf("written outside: %v, %v", left, err)
	}
	if got := testenv.ReadFile(t, private); got != "known only outside" {
		t.Errorf("the private file was made %q", got)
	}
	k.noWord("known only outside")
}

// What a daemon's containers cannot have is refused before the run, with the reason.
func TestRefusedWithADaemon(t *testing.T) {
	t.Parallel()
	k := newTask(t, asDocker, plain, "", "", "")
	k.env = []string{"DOCKER_HOST=unix:///nothing"}
	if out := k.evalrun(2, "run", "--isolation", "docker", "--agent", "oracle", "task"); !strings.Contains(out, "the Docker daemon at unix:///nothing does not answer") {
		t.Errorf("daemon: %s", out)
	}
	if left := k.containers(); len(left) > 0 {
		t.Errorf("containers are left: %v", left)
	}
}

// Containers of others are never touched: those that have a name of evalrun's, or labels that say what
// is not true.
func TestContainersOfOthers(t *testing.T) {
	t.Setenv("DOCKER_HOST", theDaemon(t).Host)
	ctx := t.Context()
	d, err := container.OpenDaemon(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	a := tar.NewWriter(&archive)
	const dockerfile = "FROM scratch\nCOPY Dockerfile /\n"
	if err := errors.Join(a.WriteHeader(&tar.Header{Name: "Dockerfile", Mode: 0o644, Size: int64(len(dockerfile))}), func() error { _, err := a.Write([]byte(dockerfile)); return err }(), a.Close()); err != nil {
		t.Fatal(err)
	}
	image, err := d.Build(ctx, &archive, docker.Build{Dockerfile: "Dockerfile"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	const rollout = "store of others/rollout"
	sum := sha256.Sum256([]byte(rollout))
	var others []string
	for name, labels := range map[string]map[string]string{
		fmt.Sprintf("evalrun-%x", sum[:8]): nil,
		"evalrun-of-another-machine":       {"dev.evalrun.rollout": rollout, "dev.evalrun.machine": "another", "dev.evalrun.owner": "boot:1:1:1"},
		"evalrun-with-a-hostile-label":     {"dev.evalrun.rollout": rollout, "dev.evalrun.owner": "::-1:x:$(reboot)"},
	} {
		id, err := d.Create(ctx, name, docker.Spec{Image: image, Cmd: []string{"/x"}, Labels: labels})
		if err != nil {
			t.Fatal(err)
		}
		others = append(others, id)
		t.Cleanup(func() {
			if err := d.Remove(context.WithoutCancel(ctx), id); err != nil {
				t.Error(err)
			}
		})
	}
	// A volume of programs that another machine fills or has filled, that somebody names like that, or says to be one.
	for name, labels := range map[string]map[string]string{
		"evalrun-programs-of-others": {"dev.evalrun.programs": "x", "dev.evalrun.machine": "another", "dev.evalrun.filler": "boot:1:1:1"},
		"evalrun-programs-0-x":       nil,
		"evalrun-programs-1-x":       {"dev.evalrun.programs": "x", "dev.evalrun.machine": "another"},
		"evalrun-programs-1":         {"dev.evalrun.programs": "x", "dev.evalrun.whole": "evalrun-programs-1-x"},
		"evalrun-programs-2":         {"dev.evalrun.programs": "x", "dev.evalrun.whole": "evalrun-programs-0-x"},
	} {
		if _, err := d.CreateVolume(ctx, name, labels); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			there, err := d.CreateVolume(context.WithoutCancel(ctx), name, map[string]string{"was": "removed"})
			if err != nil || there["was"] != "" {
				t.Errorf("the volume %s of others: %v, %v", name, there, err)
			}
			if err := d.RemoveVolume(context.WithoutCancel(ctx), name); err != nil {
				t.Error(err)
			}
		})
	}
	if _, err := d.Sweep(ctx); err != nil {
		t.Error(err)
	}
	if _, err := d.CollectPrograms(ctx, 0, false); err != nil {
		t.Error(err)
	}
	if err := build(); err != nil {
		t.Fatal(err)
	}
	r := d.NewRemote(container.RemoteSpec{Rollout: rollout, Image: image, Workdir: "/", Executable: filepath.Join(programs, "evalrun")})
	if err := r.Put(testenv.SmallRoot(t)+"/etc/passwd", "/passwd", false); err == nil || !strings.Contains(err.Error(), "that is not evalrun's") {
		t.Errorf("a container of this name: %v", err)
	}
	if err := r.Remove(ctx); err != nil {
		t.Error(err)
	}
	for _, id := range others {
		if _, err := d.Inspect(ctx, id); err != nil {
			t.Errorf("a container of others: %v", err)
		}
	}
}
