package serve_test

import (
	"bytes"
	"net"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"
)

// BenchmarkEventToLastWaiter tells how long it takes, at the median, until the last of many who wait
// for a run has an event, and how much of that is the cancelling that makes the event. The clients
// share the machine with the server; so that the figure is its own and not theirs, one thread takes
// all answers from the kernel and reads only their first line.
func BenchmarkEventToLastWaiter(b *testing.B) {
	w := newBench(b)
	cancel := func(runID string) time.Time {
		began := time.Now()
		if _, err := w.Cancel(b.Context(), runID); err != nil {
			b.Fatal(err)
		}
		return began
	}
	var alone, lasts []time.Duration
	for range b.N {
		alone = append(alone, time.Since(cancel(w.start("greet").RunID)))
		runID := w.start("greet").RunID
		answers := newAnswers(b, w.waiting(b, runID, "after=1"))
		came := make(chan time.Time)
		go func() { came <- answers.last(b) }()
		runtime.GC() // what the benchmark itself has left behind
		began := cancel(runID)
		lasts = append(lasts, (<-came).Sub(began))
		answers.close()
	}
	for unit, all := range map[string][]time.Duration{"ms-to-last": lasts, "ms-cancel": alone} {
		slices.Sort(all)
		b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, unit)
	}
}

// answers are connections on which an answer is awaited.
type answers struct {
	epoll int
	fds   []int
}

func newAnswers(b *testing.B, conns []net.Conn) *answers {
	b.Helper()
	epoll, err := syscall.EpollCreate1(0)
	if err != nil {
		b.Fatal(err)
	}
	a := &answers{epoll: epoll}
	for _, conn := range conns {
		file, err := conn.(*net.TCPConn).File()
		if err != nil {
			b.Fatal(err)
		}
		fd, err := syscall.Dup(int(file.Fd()))
		_, _ = file.Close(), conn.Close()
		if err == nil {
			err = syscall.EpollCtl(epoll, syscall.EPOLL_CTL_ADD, fd, &syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(fd)})
		}
		if err != nil {
			b.Fatal(err)
		}
		a.fds = append(a.fds, fd)
	}
	return a
}

// last waits until each connection has an answer, and says when the last came.
func (a *answers) last(b *testing.B) time.Time {
	events, head := make([]syscall.EpollEvent, 128), make([]byte, 4096)
	for left := len(a.fds); left > 0; {
		n, err := syscall.EpollWait(a.epoll, events, 10_000)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || n == 0 {
			b.Errorf("%d answers are missing: %v", left, err)
			break
		}
		for _, e := range events[:n] {
			n, err := syscall.Read(int(e.Fd), head)
			if err != nil || !bytes.HasPrefix(head[:max(n, 0)], []byte("HTTP/1.1 200 ")) {
				b.Errorf("%s %v", head[:max(n, 0)], err)
			}
			left--
		}
	}
	return time.Now()
}

func (a *answers) close() {
	for _, fd := range append(a.fds, a.epoll) {
		_ = syscall.Close(fd)
	}
}
