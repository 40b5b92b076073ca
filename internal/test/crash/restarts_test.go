package crash

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/backend"
	"github.com/evalrun/evalrun/internal/testenv"
)

// TestServerCrashes ends the PostgreSQL server of a store as a crash does, again and again, while three
// processes work on a run. No process ends, and the run ends as if nothing had happened. How often a
// segment was begun again, and how often what somebody had done was refused, is printed.
func TestServerCrashes(t *testing.T) {
	server := testenv.StartPostgres(t)
	crashes, times := 10, 4
	if os.Getenv(testenv.Long) != "" {
		crashes, times = 20, 12
	}
	s := newLargeScenario(t, "", times, asksProcess)
	s.store, s.noFault = server.URL, true
	s.environ = append(s.environ, "EVALRUN_STORE="+server.URL)
	starts := 5 * times // of jobs that the service counts
	s.service.begun = make(chan struct{}, starts)

	s.make()
	run := s.start(append(s.command().Args[1:], "--wait-timeout", "180s")...)
	var workers []*background
	for range 2 {
		workers = append(workers, s.start("executor", "-j", "2", "-q"))
	}
	ended := make(chan error, 1)
	go func() { ended <- run.cmd.Wait() }()
	crashed := 0
	for begun := 1; begun <= starts; begun++ {
		select {
		case <-s.service.begun:
		case err := <-ended:
			t.Fatalf("the run ended after %d crashes: %v\n%s", crashed, err, run.out.String())
		}
		if crashed < begun*crashes/starts {
			crashed++
			if err := server.Crash(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := <-ended; err != nil {
		t.Errorf("run: %v\n%s", err, run.out.String())
	}
	refused := run.refused()
	for i, w := range workers {
		if err := w.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Errorf("worker %d has ended: %v", i, err)
		}
		if err := w.cmd.Wait(); err != nil {
			t.Errorf("worker %d: %v\n%s", i, err, w.out.String())
		}
		refused += w.refused()
	}
	for _, wrong := range s.violations() {
		t.Error(wrong)
	}
	again, segments := s.begunAgain()
	t.Logf("%d crashes of the server, %d segments: %d started twice, %d refused", crashed, segments, again, refused)
}

// make makes the store, so that workers may begin before the first run.
func (s *scenario) make() {
	s.t.Helper()
	st, err := backend.Open(s.store, store.Options{Files: s.files()})
	if err == nil {
		err = st.Close()
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// background is a process that the test does not wait for.
type background struct {
	cmd *exec.Cmd
	out syncBuffer
}

// start starts a command of evalrun in the scenario.
func (s *scenario) start(args ...string) *background {
	s.t.Helper()
	b := &background{cmd: exec.Command(s.program, args...)}
	b.cmd.Dir, b.cmd.Env = s.dir, append(s.command().Env, s.environ...)
	b.cmd.Stdout, b.cmd.Stderr = &b.out, &b.out
	if err := b.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = b.cmd.Process.Kill() })
	return b
}

var refusal = regexp.MustCompile(`was taken over|has taken over|the lease was lost`)

// refused counts the lines in which the process says that what it did was refused.
func (b *background) refused() (n int) {
	for line := range strings.Lines(b.out.String()) {
		if refusal.MatchString(line) {
			n++
		}
	}
	return n
}

// syncBuffer is a buffer that a process writes while the test reads.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// begunAgain counts the segments of the run, and the attempts at them beyond the first.
func (s *scenario) begunAgain() (again, segments int) {
	s.t.Helper()
	st := s.open()
	defer st.Close()
	if err := st.Snapshot(s.t.Context(), runID, func(v store.View) error {
		again, segments = 0, 0
		return v.Rollouts(func(o store.RolloutView) error {
			for _, g := range o.Segments {
				segments++
				if g.Attempt > 1 {
					again++
				}
			}
			return nil
		})
	}); err != nil {
		s.t.Fatal(err)
	}
	return again, segments
}
