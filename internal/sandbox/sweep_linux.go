package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/internal/cgroup"
)

const (
	// wrapTime is how long a process may have run before we no longer trust that what it started has a
	// higher process id. By then all 32768 ids of a small system can have been used once.
	wrapTime = 5 * time.Second
	// maxPasses bounds the passes over the processes. A second one finds nothing, unless something
	// forks against us.
	maxPasses = 30
	// cleanPasses is how many passes in a row must find nothing once something was found.
	cleanPasses = 3
	// maxEnviron is how much of an environment is read. With its default settings the system allows no
	// more.
	maxEnviron = 6 << 20
	// execTime is how long we wait for a process that is in the middle of an exec to show its
	// environment again.
	execTime = time.Second
	// deathTime is how long the processes found in one pass may take to die of SIGKILL.
	deathTime = time.Second
)

// Sweep ends every process that bears one of the markers. It makes passes over all processes until
// one finds none. It is for processes that take rollouts over from an evalrun that has died. It
// returns how many processes it ended. It skips processes that we may not look into.
//
// It also removes the control groups of their processes.
//
// On systems other than Linux it does nothing.
func Sweep(markers ...string) (int, error) {
	if len(markers) == 0 {
		return 0, nil
	}
	n, err := sweep(0, markers...)
	return n, errors.Join(err, cgroup.Sweep(markers...))
}

// sweepAfter ends the processes that bear a marker and were started by the process pid, which has
// ended.
func sweepAfter(pid int, started time.Time, marker string) error {
	last := lastPID()
	if last == pid {
		return nil // no process or thread was started on this system since
	}
	if last < pid || time.Since(started) > wrapTime {
		pid = 0 // the ids have started over, or may have
	}
	_, err := sweep(pid, marker)
	return err
}

// sweep looks at the processes whose id is above after.
func sweep(after int, markers ...string) (int, error) {
	of := make(map[string]bool, len(markers))
	for _, marker := range markers {
		of[marker] = true
	}
	s := sweeper{markers: of, self: os.Getpid(), ended: map[int]bool{}}
	began := time.Now()
	for passes, clean := 0, 0; passes < maxPasses; {
		if after > 0 && lastPID() < after {
			after = 0 // the ids have started over
		}
		found, hidden, err := s.pass(after)
		switch {
		case err != nil:
			return len(s.ended), err
		case found:
			passes++
			clean = 0
		case hidden && time.Since(began) < execTime:
			time.Sleep(time.Millisecond) // nothing tells when an exec is over
		default:
			// A pass can miss a process that forks and exits all the time.
			if clean++; len(s.ended) == 0 || clean == cleanPasses {
				return len(s.ended), nil
			}
		}
	}
	return len(s.ended), fmt.Errorf("processes with %s of %v are still there after %d passes",
		MarkerVar, markers, maxPasses)
}

type sweeper struct {
	markers map[string]bool
	self    int
	ended   map[int]bool
	buf     []byte
}

// pass ends the processes that it finds and waits until they are dead. It reports whether there
// were any, and whether there was one whose environment is hidden for the moment.
func (s *sweeper) pass(after int) (found, hidden bool, err error) {
	proc, err := os.Open("/proc")
	if err != nil {
		return false, false, fmt.Errorf("look for processes with a marker: %w", err)
	}
	names, err := proc.Readdirnames(-1)
	_ = proc.Close() // only read
	if err != nil {
		return false, false, fmt.Errorf("look for processes with a marker: %w", err)
	}
	var dying []int // pidfds
	for _, name := range names {
		if name[0] < '0' || name[0] > '9' {
			continue
		}
		pid, err := strconv.Atoi(name)
		if err != nil || pid <= after || pid == s.self {
			continue
		}
		environ := s.environ(pid)
		if !marked(environ, s.markers) {
			// Up to a page is read at once, and is whole.
			if n := len(environ); environ != nil && (n == 0 || n > os.Getpagesize()) && n < maxEnviron && s.hides(pid, n) {
				hidden = true
			}
			continue
		}
		found = true
		s.ended[pid] = true
		if fd, ok := s.kill(pid); ok {
			dying = append(dying, fd)
		}
	}
	deadline := time.Now().Add(deathTime)
	for _, fd := range dying {
		awaitDeath(fd, deadline)
	}
	return found, hidden, nil
}

// kill ends one process and returns a pidfd of it. By now the id may belong to another process, so
// kill holds the process first and looks at it again.
func (s *sweeper) kill(pid int) (fd int, ok bool) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) { // before Linux 5.3, or forbidden in a container
			_ = unix.Kill(pid, unix.SIGKILL) // a process that is gone is as good as killed
		}
		return 0, false
	}
	if marked(s.environ(pid), s.markers) {
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) // a process that is gone is as good as killed
	}
	return fd, true
}

// awaitDeath waits for a process that was killed. While it is dying it shows its environment, and
// the next pass would find it again.
func awaitDeath(fd int, deadline time.Time) {
	defer func() { _ = unix.Close(fd) }()
	for {
		left := max(0, time.Until(deadline).Milliseconds())
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left)); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// environ returns the environment of a process. It is nil if the process is gone or we may not look
// into it, and empty for a zombie, a kernel thread, or in the middle of an exec.
func (s *sweeper) environ(pid int) []byte { return s.read(pid, "environ") }

// hides reports whether a process has an environment of more than the n bytes that could be read of
// it. It is then in the middle of an exec, and either its new memory is not set up or the old one,
// which was looked at, is gone.
func (s *sweeper) hides(pid, n int) bool {
	const (
		flagExiting = 0x4      // PF_EXITING
		flagKernel  = 0x200000 // PF_KTHREAD
	)
	stat := s.read(pid, "stat")
	// The second field is the program's name in brackets, which may hold anything. After it the fields
	// count from 3.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 52-3 {
		return false
	}
	field := func(i int) uint64 {
		v, _ := strconv.ParseUint(string(fields[i-3]), 10, 64) // the kernel writes numbers
		return v
	}
	if field(9)&(flagExiting|flagKernel) != 0 || string(fields[0]) == "Z" {
		return false
	}
	start, end := field(50), field(51)
	return end == 0 || end-start > uint64(n)
}

// read reads a file of a process. The result is valid until the next call.
func (s *sweeper) read(pid int, name string) []byte {
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/"+name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer func() { _ = unix.Close(fd) }()
	if s.buf == nil {
		s.buf = make([]byte, 8<<10)
	}
	n := 0
	for {
		m, err := unix.Read(fd, s.buf[n:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || m == 0 {
			return s.buf[:n]
		}
		if n += m; n == len(s.buf) {
			if n >= maxEnviron {
				return s.buf[:n]
			}
			s.buf = append(s.buf, make([]byte, n)...)
		}
	}
}

// lastPID returns the process or thread id that the system assigned last, 0 if it does not tell.
func lastPID() int {
	fd, err := unix.Open("/proc/loadavg", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	defer func() { _ = unix.Close(fd) }()
	var buf [128]byte
	n, err := unix.Read(fd, buf[:])
	if err != nil {
		return 0
	}
	line := bytes.TrimSpace(buf[:n])
	pid, err := strconv.Atoi(string(line[bytes.LastIndexByte(line, ' ')+1:]))
	if err != nil {
		return 0
	}
	return pid
}

// awaitExit waits until the process has ended and leaves it unreaped.
func awaitExit(cmd *exec.Cmd) {
	for errors.Is(unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
	}
}

// signalGroup sends a signal to a process group, which may be empty.
func signalGroup(pgid int, sig unix.Signal) { _ = unix.Kill(-pgid, sig) }
