package exec

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/internal/failpoint"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/testenv"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/internal/wait/template"
	"github.com/evalrun/evalrun/internal/wait/waittest"
)

// patience is how long a test waits for what must come.
const patience = 30 * time.Second

// rig is a store in which jobs are run.
type rig struct {
	*testing.T
	options wait.Env
	config  Config
	p       wait.Job
	// wake is the socket of a waiting evalrun, pipe what a job's command writes to, gate what it
	// reads from.
	wake       *net.UnixConn
	pipe, gate *os.File
	// stops is where processes report that they have stopped themselves.
	stops *net.UnixConn
}

// known resolves the variables that a test gives.
func known(values map[string]string) template.Resolver {
	return func(name string) (string, bool) { v, ok := values[name]; return v, ok }
}

// newRig makes a store whose process P is a shell script. In it, $PIPE and $GATE are named pipes.
func newRig(t *testing.T, script string, change ...func(*Config)) *rig {
	t.Helper()
	dir, err := os.MkdirTemp("", "trg") // short, for the sockets' sake
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { remove(t, dir) })
	r := &rig{T: t}
	if err := os.MkdirAll(filepath.Join(dir, "store", "wake", "jobs"), 0o700); err != nil {
		t.Fatal(err)
	}
	r.wake, r.stops = r.socket(dir, "store/wake/jobs/x.sock"), r.socket(dir, "stops.sock")
	r.pipe, r.gate = r.fifo(dir, "pipe"), r.fifo(dir, "gate")
	t.Setenv(stopSocket, filepath.Join(dir, "stops.sock"))
	t.Setenv(stopAt, "")
	t.Setenv("EVALRUN_ROLLOUT", "rollout-1")
	t.Setenv("GORACE", "atexit_sleep_ms=0") // else every process takes a second to end under the race detector
	c := &Config{Command: []string{"/bin/sh", "-c", script}, Env: map[string]string{
		"PIPE": filepath.Join(dir, "pipe"), "GATE": filepath.Join(dir, "gate"), "TOKEN": "${TOKEN}"}}
	for _, f := range change {
		f(c)
	}
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r.config = *c
	r.options = wait.Env{BaseDir: dir, StoreDir: filepath.Join(dir, "store"), Executable: executable,
		Resolve: known(map[string]string{"TOKEN": "open-sesame"})}
	r.p = wait.Job{TriggerID: "0198c0de-0000-7000-8000-000000000001", Spec: wait.Spec{Type: wait.TypeJob, Name: "JOB", Process: "P", FolderPath: "Shared",
		Payload: json.RawMessage(`{"process_name":"P","input_arguments":{"n":1.50}}`)}}
	t.Cleanup(r.end)
	return r
}

// remove removes a folder in which a supervisor that has nothing to do may just be coming up.
func remove(t *testing.T, dir string) {
	gone := dir + ".gone"
	if err := os.Rename(dir, gone); err != nil {
		t.Error(err)
	}
	err := os.RemoveAll(gone)
	for tries := 0; err != nil && tries < 100; tries++ {
		err = os.RemoveAll(gone)
	}
	if err != nil {
		t.Error(err)
	}
}

// end ends whatever a test has left running: supervisors by their lock, commands by their record.
func (r *rig) end() {
	if pid, held, _ := lockHolder(r.folder().path(lockFile)); held {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	_ = r.folder().endCommand()
}

func (r *rig) socket(dir, name string) *net.UnixConn {
	r.Helper()
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, name), Net: "unixgram"})
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = c.Close() })
	return c
}

// fifo makes a named pipe and opens it for both directions, so that neither end waits for the
// other.
func (r *rig) fifo(dir, name string) *os.File {
	r.Helper()
	if err := syscall.Mkfifo(filepath.Join(dir, name), 0o600); err != nil {
		r.Fatal(err)
	}
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDWR|syscall.O_NONBLOCK, 0)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = f.Close() })
	return f
}

func (r *rig) source() wait.Source { return New(r.options, r.config) }

func (r *rig) folder() jobFolder {
	return jobFolder(filepath.Join(r.options.StoreDir, "jobs", r.p.TriggerID))
}

func (r *rig) start() {
	r.Helper()
	key, err := r.source().Start(r.Context(), r.p)
	if key != "job-"+r.p.TriggerID || err != nil {
		r.Fatal(key, err)
	}
}

func (r *rig) check() wait.Status {
	r.Helper()
	st, err := r.source().Check(r.Context(), r.p)
	if err != nil {
		r.Fatal(err)
	}
	return st
}

// datagram waits for a datagram.
func (r *rig) datagram(c *net.UnixConn) string {
	r.Helper()
	buf := make([]byte, 200)
	_ = c.SetReadDeadline(time.Now().Add(patience))
	n, err := c.Read(buf)
	if err != nil {
		log, _ := os.ReadFile(r.folder().path(logFile))
		r.Fatalf("waiting for a datagram: %v; the supervisor said: %s", err, log)
	}
	return string(buf[:n])
}

// finished waits until the job's end is told and gives its status.
func (r *rig) finished() wait.Status {
	r.Helper()
	if got, want := r.datagram(r.wake), "job "+r.p.TriggerID+"\n"; got != want {
		r.Fatalf("expected the datagram %q, got %q", want, got)
	}
	st := r.check()
	if !st.Done {
		r.Fatalf("told that the job is done, and it is not: %+v", st)
	}
	return st
}

// line waits for a line that the command writes to its pipe.
func (r *rig) line() string {
	r.Helper()
	_ = r.pipe.SetReadDeadline(time.Now().Add(patience))
	var b strings.Builder
	for one := make([]byte, 1); !strings.HasSuffix(b.String(), "\n"); b.Write(one) {
		if _, err := r.pipe.Read(one); err != nil {
			r.Fatalf("waiting for the command: %v", err)
		}
	}
	return strings.TrimSpace(b.String())
}

// nothing fails the test if the command has written more.
func (r *rig) nothing() {
	r.Helper()
	_ = r.pipe.SetReadDeadline(time.Now().Add(time.Millisecond))
	if b, _ := io.ReadAll(r.pipe); len(b) > 0 {
		r.Errorf("the command was run again: %q", b)
	}
}

func (r *rig) open() {
	r.Helper()
	if _, err := r.gate.WriteString("go\n"); err != nil {
		r.Fatal(err)
	}
}

func TestSourceKeepsToItsInterface(t *testing.T) {
	r := newRig(t, `read x <"$GATE"; echo 42`)
	waittest.Run(t, waittest.Case{Source: r.source(), Job: r.p, End: func() { r.open(); r.datagram(r.wake) }})
}

// R21: a stop at any step of a start leaves a job that is started once.
func TestAStopAtEachStepOfTheStart(t *testing.T) {
	for _, at := range []string{"job.folder", "job.spec", "job.spawned"} {
		t.Run(at, func(t *testing.T) {
			r := newRig(t, `echo run >"$PIPE"; echo 42`)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			step = func(name string) {
				if name == at {
					stop()
				}
			}
			defer func() { step = failpoint.Hit }()
			if _, err := r.source().Start(ctx, r.p); errors.As(err, new(*fault.Fault)) || err == nil && at != "job.spawned" {
				t.Fatalf("the stop at %s gave %v", at, err)
			}
			r.start()
			r.line()
			if st := r.finished(); string(st.Payload) != "42" {
				t.Errorf("got %+v", st)
			}
			r.nothing()
		})
	}
}

func TestExec(t *testing.T) {
	r := newRig(t, `echo run >"$PIPE"; read x <"$GATE"; env >env.txt; cat`, func(c *Config) { c.CWD = "tools" })
	if err := os.Mkdir(filepath.Join(r.options.BaseDir, "tools"), 0o700); err != nil {
		t.Fatal(err)
	}
	r.start()
	if got := r.line(); got != "run" {
		t.Fatal(got)
	}
	if diff := cmp.Diff(wait.Status{After: 5 * time.Second}, r.check()); diff != "" {
		t.Error(diff)
	}
	r.open()
	want := wait.Status{Done: true, Payload: json.RawMessage(`{"key":"` + r.p.TriggerID + `","process":"P","folderPath":"Shared","folderKey":"","inputArguments":{"n":1.50}}`)}
	if diff := cmp.Diff(want, r.finished()); diff != "" {
		t.Error(diff)
	}

	env, err := os.ReadFile(filepath.Join(r.options.BaseDir, "tools", "env.txt"))
	handed := "EVALRUN_JOB_ID=" + r.p.TriggerID + "\n" // of evalrun's own variables, which begin alike, it gets none
	if err != nil || strings.Count(string(env), "EVALRUN_") != 1 || !strings.Contains(string(env), handed) || !strings.Contains(string(env), "TOKEN=open-sesame\n") {
		t.Errorf("%v, %s", err, env)
	}
	err = fs.WalkDir(os.DirFS(r.options.StoreDir), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(filepath.Join(r.options.StoreDir, path))
		if info, _ := d.Info(); strings.Contains(string(b), "open-sesame") || info.Mode().Perm() != 0o600 {
			t.Errorf("%s holds a secret or is readable by others (%s)", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	var status syscall.WaitStatus
	if pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil); err != syscall.ECHILD {
		t.Errorf("a process was left for its starter to wait for: %d, %v", pid, err)
	}
}

func TestExecResults(t *testing.T) {
	for _, c := range []struct {
		name, script string
		change       func(*Config)
		payload      string
		fault        string
	}{
		{name: "JSON", script: `echo '{"a": 1}'`, payload: `{"a":1}`},
		{name: "text", script: `echo 'done & <dusted>'`, payload: `"done & <dusted>"`},
		{name: "nothing", script: `true`, payload: `null`},
		{name: "two documents are text", script: `echo 1; echo 2`, payload: `"1\n2"`},
		{name: "bytes that are not UTF-8", script: `printf '\377'`, payload: `"\ufffd"`},
		{name: "a failure", script: `echo out; echo oops >&2; exit 3`, fault: "the command ended with exit status 3; its stderr ends with: oops"},
		{name: "a signal", script: `kill -9 $$`, fault: "the command ended with signal: killed"},
		{name: "too much", script: `head -c 17000000 /dev/zero`, fault: "the command printed more than 16 MiB"},
		{name: "too long", script: `read x <"$GATE"`, change: func(c *Config) { c.Timeout = wait.Duration(50 * time.Millisecond) }, fault: "the job took longer than its timeout of 50ms"},
		{name: "no such program", change: func(c *Config) { c.Command = []string{"no-such-program"} }, fault: "the command could not be started: exec: \"no-such-program\": executable file not found in $PATH"},
		{name: "no such folder", change: func(c *Config) { c.CWD = "/no/such/folder" }, fault: "the command could not be started: "},
		{name: "a child that keeps the pipe", script: `(trap "" HUP; read x <"$GATE") & echo '"early"'`, payload: `"early"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.change == nil {
				c.change = func(*Config) {}
			}
			r := newRig(t, c.script, c.change)
			r.start()
			st := r.finished()
			switch {
			case c.fault == "" && (st.Fault != nil || string(st.Payload) != c.payload):
				t.Errorf("expected %s, got %s, %+v", c.payload, st.Payload, st.Fault)
			case c.fault != "" && (st.Fault == nil || st.Fault.Category != "job" || !strings.HasPrefix(st.Fault.Message, c.fault)):
				t.Errorf("expected a fault: %s, got %s, %+v", c.fault, st.Payload, st.Fault)
			}
			r.open() // for a child that waits
		})
	}
}

func TestExecCancel(t *testing.T) {
	testenv.NeedSlow(t)
	cancelled := wait.Status{Done: true, Fault: fault.New("job", "the job was cancelled")}
	for name, script := range map[string]string{
		"a command that ends when told":       `echo run >"$PIPE"; read x <"$GATE"`,
		"a command that ignores it":           `trap "" TERM; echo run >"$PIPE"; while :; do read x <"$GATE"; done`,
		"a command with a child that does so": `(trap "" TERM; echo run >"$PIPE"; while :; do read x <"$GATE"; done) & wait`,
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, script)
			r.start()
			r.line()
			if err := r.source().Cancel(t.Context(), r.p); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(cancelled, r.finished()); diff != "" {
				t.Error(diff)
			}
			if err := r.source().Cancel(t.Context(), r.p); err != nil {
				t.Error("cancelled twice:", err)
			}
		})
	}
	t.Run("a job that was never started", func(t *testing.T) {
		r := newRig(t, `echo run >"$PIPE"`)
		if err := r.source().Cancel(t.Context(), r.p); err != nil || r.folder().has("") {
			t.Error(err)
		}
	})
	t.Run("before it begins", func(t *testing.T) {
		r := newRig(t, `echo run >"$PIPE"`)
		pid := r.stoppedSupervisor("job.locked")
		if err := r.source().Cancel(t.Context(), r.p); err != nil {
			t.Fatal(err)
		}
		r.signal(pid, syscall.SIGCONT)
		if st := r.finished(); st.Fault == nil || st.Fault.Message != "the job was cancelled before it began" {
			t.Errorf("%+v", st)
		}
		r.nothing()
	})
}

func TestExecErrors(t *testing.T) {
	r := newRig(t, `true`)
	r.options.Resolve = nil
	if _, err := r.source().Start(t.Context(), r.p); err == nil || !strings.Contains(err.Error(), "env.TOKEN of the job: the variable ${TOKEN} has no value") || r.folder().has("") {
		t.Error(err)
	}
	r.options.Resolve = known(map[string]string{"TOKEN": "x"})
	r.options.Executable = "/no/such/program"
	if _, err := r.source().Start(t.Context(), r.p); err == nil || !strings.Contains(err.Error(), "the supervisor of the job could not be started") {
		t.Error(err)
	}
	r.p.TriggerID = "../x"
	if _, err := r.source().Start(t.Context(), r.p); err == nil {
		t.Error("a trigger id left the folder")
	}
}

// An unused store may be moved.
func TestExecStoreMoves(t *testing.T) {
	r := newRig(t, `echo 7`)
	r.start()
	r.finished()
	moved := r.options.StoreDir + "-2"
	if err := os.Rename(r.options.StoreDir, moved); err != nil {
		t.Fatal(err)
	}
	if st := r.check(); st.Fault == nil || st.Fault.Category != "job-lost" {
		t.Errorf("a job whose folder is gone: %+v", st)
	}
	r.options.StoreDir = moved
	if st := r.check(); string(st.Payload) != "7" {
		t.Errorf("%+v", st)
	}
}

// A program that is not evalrun, and so starts itself instead of a supervisor, does that only once.
func TestExecWithoutSupervisor(t *testing.T) {
	r := newRig(t, "true")
	t.Setenv(envVar, "{}") // this is the second one
	if _, err := New(r.options, r.config).Start(t.Context(), r.p); err == nil || !strings.Contains(err.Error(), "local jobs need evalrun itself") {
		t.Error(err)
	}
}
