package exec

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/evalrun/evalrun/internal/testenv"
	"github.com/evalrun/evalrun/internal/wait"
)

func (r *rig) signal(pid int, sig syscall.Signal) {
	r.Helper()
	if err := syscall.Kill(pid, sig); err != nil {
		r.Fatal(err)
	}
}

// stopped waits until a process has stopped itself at a step and gives its pid.
func (r *rig) stopped(at string) (pid int) {
	r.Helper()
	var name string
	if _, err := fmt.Sscanf(r.datagram(r.stops), "%s %d", &name, &pid); err != nil || name != at {
		r.Fatal(name, err)
	}
	// It says so before it stops. A signal to go on must not come in between.
	if !testenv.Eventually(func() bool {
		state, err := exec.Command("ps", "-o", "state=", "-p", strconv.Itoa(pid)).Output()
		return err == nil && strings.HasPrefix(string(state), "T")
	}) {
		r.Fatalf("process %d did not stop at %s", pid, at)
	}
	return pid
}

// stoppedSupervisor starts the job and waits until its supervisor has stopped itself at a step.
func (r *rig) stoppedSupervisor(at string) (pid int) {
	r.Helper()
	r.Setenv(stopAt, at)
	r.start()
	r.Setenv(stopAt, "")
	return r.stopped(at)
}

// unlocked waits until no process holds the job's lock.
func (r *rig) unlocked() {
	r.Helper()
	f, err := os.OpenFile(r.folder().path(lockFile), os.O_RDWR, 0)
	if err == nil {
		err = syscall.FcntlFlock(f.Fd(), syscall.F_SETLKW, &syscall.Flock_t{Type: syscall.F_WRLCK})
	}
	if err != nil {
		r.Fatal(err)
	}
	_ = f.Close()
}

// superviseAgain runs a supervisor to its end.
func (r *rig) superviseAgain() {
	r.Helper()
	cmd := exec.Command(r.options.Executable, supervisorCommand, string(r.folder()))
	cmd.Env = append(os.Environ(), detachedVar+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		r.Fatalf("%v: %s", err, out)
	}
}

// Given a supervisor that is killed at a step, when everything is started again, then the command
// has run once at most and the job is either done or known to be lost.
func TestExecSupervisorIsKilled(t *testing.T) {
	testenv.NeedSlow(t)
	for _, c := range []struct {
		at   string
		runs int
		lost bool
	}{
		{"job.locked", 1, false},
		{"job.started", 0, true},
		{"job.running", 1, true},
		{"job.ended", 1, true},
		{"job.result", 1, false},
	} {
		t.Run(c.at, func(t *testing.T) {
			r := newRig(t, `echo run >"$PIPE"; echo 7`)
			pid := r.stoppedSupervisor(c.at)
			if st := r.check(); st.Done != (c.at == "job.result") {
				t.Errorf("while the supervisor lives: %+v", st)
			}
			r.signal(pid, syscall.SIGKILL)
			r.unlocked()

			var st wait.Status
			if c.at == "job.locked" {
				if st := r.check(); st.Done { // and starts another supervisor
					t.Errorf("before another supervisor has begun: %+v", st)
				}
				st = r.finished()
			} else {
				st = r.check()
			}
			switch {
			case c.lost && (st.Fault == nil || st.Fault.Category != "job-lost"):
				t.Errorf("expected the job to be lost, got %+v", st)
			case !c.lost && string(st.Payload) != "7":
				t.Errorf("expected the result, got %+v", st)
			}
			for range c.runs {
				r.line()
			}
			for range 2 {
				r.start()
				r.superviseAgain()
			}
			r.nothing()
			if again := r.check(); again.Done != st.Done || string(again.Payload) != string(st.Payload) {
				t.Errorf("the answer changed from %+v to %+v", st, again)
			}
		})
	}
}

// Given an evalrun that is killed with its whole process group at a step of starting a job, when
// another one goes on, then the command runs once.
func TestExecStarterIsKilled(t *testing.T) {
	for _, at := range []string{"job.folder", "job.spec", "job.spawned"} {
		t.Run(at, func(t *testing.T) {
			r := newRig(t, `echo run >"$PIPE"; read x <"$GATE"; echo 7`)
			starter := r.starter(at)
			if pid := r.stopped(at); pid != starter.Process.Pid {
				t.Fatal("another process stopped", pid)
			}
			r.signal(-starter.Process.Pid, syscall.SIGKILL)
			_ = starter.Wait()

			if st := r.check(); st.Done || st.Fault != nil {
				t.Errorf("%+v", st)
			}
			r.start()
			r.line()
			r.start()
			r.open()
			if st := r.finished(); string(st.Payload) != "7" {
				t.Errorf("%+v", st)
			}
			r.superviseAgain()
			r.nothing()
		})
	}
}

// starter runs an evalrun that starts the job and stops at a step.
func (r *rig) starter(at string) *exec.Cmd {
	r.Helper()
	o := startOptions{r.options.BaseDir, r.options.StoreDir, r.options.Executable, r.config}
	o.Config.Env["TOKEN"] = "plain" // a function such as Resolve cannot be handed over
	var arguments []string
	for _, v := range []any{o, r.p} {
		text, err := json.Marshal(v)
		if err != nil {
			r.Fatal(err)
		}
		arguments = append(arguments, string(text))
	}
	cmd := exec.Command(r.options.Executable, append([]string{"test-start"}, arguments...)...)
	cmd.Env = append(os.Environ(), stopAt+"="+at)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		r.Fatal(err)
	}
	return cmd
}

// Given many evalruns that start the same job at once, then its command runs once.
func TestExecConcurrentStarts(t *testing.T) {
	r := newRig(t, `echo run >"$PIPE"; read x <"$GATE"; echo 7`)
	others := []*exec.Cmd{r.starter(""), r.starter("")}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if _, err := r.source().Start(t.Context(), r.p); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, other := range others {
		if err := other.Wait(); err != nil {
			t.Error(err)
		}
	}
	r.line()
	r.superviseAgain() // while it runs
	r.open()
	if st := r.finished(); string(st.Payload) != "7" {
		t.Errorf("%+v", st)
	}
	r.superviseAgain()
	r.nothing()
}

// Given a command that has outlived its supervisor, when its job is cancelled, then it is ended.
func TestExecCancelAfterTheSupervisorDied(t *testing.T) {
	r := newRig(t, `exec 9>"$PIPE"; echo run >&9; read x <"$GATE"`)
	pid := r.stoppedSupervisor("job.running")
	r.line()
	life, err := os.Open(r.pipe.Name()) // ends when the last writer has: the command, once ours is closed
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = life.Close() }()
	_ = r.pipe.Close()
	r.signal(pid, syscall.SIGKILL)
	r.unlocked()
	if st := r.check(); st.Fault == nil || st.Fault.Category != "job-lost" {
		t.Errorf("%+v", st)
	}
	if err := r.source().Cancel(t.Context(), r.p); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(life); len(b) > 0 || err != nil {
		t.Error(strings.TrimSpace(string(b)), err)
	}
}
