package sqlite

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/evalrun/evalrun/internal/store"
)

// maxSocketPath is the longest path of a Unix socket on Linux and macOS, less one for the zero
// byte.
const maxSocketPath = 103

const socketExt = ".sock"

// maxJobs bounds the ids that wait to be read from Wake. The jobs of ids that are dropped are found
// when they are due.
const maxJobs = 1000

// waker tells the other processes of a store that something was committed, by a datagram to the
// socket that each keeps in <store>/wake. It is a hint: a process that missed it looks by itself
// after 5 s at the latest.
type waker struct {
	dir      string
	own      string
	conn     *net.UnixConn
	received chan store.WakeUp
	changes  *changes
	done     sync.WaitGroup
}

func newWaker(storeDir string, c *changes) (*waker, error) {
	w := &waker{dir: store.WakeDir(storeDir), received: make(chan store.WakeUp, 1), changes: c}
	if err := os.MkdirAll(w.dir, 0o700); err != nil {
		return w, err
	}
	w.own = filepath.Join(w.dir, uuid.NewString()[:8]+socketExt)
	if len(w.own) > maxSocketPath {
		return w, nil // the folder's name is too long for a socket; others are still told as far as possible
	}
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: w.own, Net: "unixgram"})
	if err != nil {
		return w, nil //nolint:nilerr // a file system without sockets: five seconds instead of none
	}
	w.conn = conn
	w.removeStale()
	w.done.Add(1)
	go w.receive()
	return w, nil
}

func (w *waker) receive() {
	defer w.done.Done()
	buf := make([]byte, maxMessage)
	for {
		n, err := w.conn.Read(buf)
		if err != nil {
			return // closed
		}
		up, forDispatchers := parseMessage(string(buf[:n]))
		if up.Unnamed {
			w.changes.announceAll()
		} else {
			w.changes.announce(up.Runs...)
		}
		if forDispatchers {
			w.signal(up)
		}
	}
}

// signal hands a wake-up to the reader of the channel, together with one that was not yet read.
func (w *waker) signal(up store.WakeUp) {
	for {
		select {
		case w.received <- up:
			return
		case earlier := <-w.received:
			up.Jobs = append(earlier.Jobs, up.Jobs...)
			up.Jobs = up.Jobs[max(0, len(up.Jobs)-maxJobs):]
			up.Runs = append(earlier.Runs, up.Runs...)
			up.Unnamed = up.Unnamed || earlier.Unnamed || len(up.Runs) > maxJobs
			up.Runs = up.Runs[max(0, len(up.Runs)-maxJobs):]
		}
	}
}

// maxMessage is how long a message may be.
const maxMessage = 512

// The first words of messages. A commit may give a dispatcher something to do. An event only
// changes a run, which those who watch it want to know.
const (
	commitWord = "commit"
	eventWord  = "event"
	jobWord    = "job"
)

// commitMessage has the word and the runs that have changed. If they are too many it names none, as
// earlier versions never named any.
func commitMessage(word string, runs []string) string {
	if text := strings.Join(append([]string{word}, runs...), " ") + "\n"; len(text) <= maxMessage {
		return text
	}
	return word + "\n"
}

// parseMessage reads what other processes say: that they have committed something, or that a job is
// done.
func parseMessage(text string) (up store.WakeUp, forDispatchers bool) {
	words := strings.Fields(text)
	switch {
	case len(words) == 2 && words[0] == jobWord:
		up.Jobs = words[1:]
	case len(words) > 1 && (words[0] == commitWord || words[0] == eventWord):
		up.Runs = words[1:]
	default:
		up.Unnamed = true
	}
	return up, len(words) == 0 || words[0] != eventWord
}

// others are the sockets of the other processes.
func (w *waker) others() (paths []string) {
	names, err := os.ReadDir(w.dir)
	if err != nil {
		return nil
	}
	for _, e := range names {
		path := filepath.Join(w.dir, e.Name())
		if path != w.own && len(path) <= maxSocketPath && filepath.Ext(path) == socketExt {
			paths = append(paths, path)
		}
	}
	return paths
}

// removeStale removes the sockets of processes that were killed.
func (w *waker) removeStale() {
	for _, path := range w.others() {
		conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
		if err != nil {
			removeIfDead(path, err)
			continue
		}
		_ = conn.Close()
	}
}

// tell wakes every other process that has the store open, and its dispatcher too if dispatchers is
// set.
func (w *waker) tell(dispatchers bool, runs []string) {
	word := eventWord
	if dispatchers {
		word = commitWord
	}
	message := []byte(commitMessage(word, runs))
	for _, path := range w.others() {
		conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
		if err != nil {
			removeIfDead(path, err)
			continue
		}
		_ = conn.SetWriteDeadline(time.Now().Add(10 * time.Millisecond)) // a full buffer means that it will wake anyway
		_, _ = conn.Write(message)
		_ = conn.Close()
	}
}

// removeIfDead removes a socket if the error of connecting to it says that its process is gone. A
// living process binds its socket before the file appears. If the file is removed all the same,
// that process finds out by itself what there is to do.
func removeIfDead(path string, err error) {
	if errors.Is(err, syscall.ECONNREFUSED) {
		_ = os.Remove(path)
	}
}

func (w *waker) close() error {
	if w.conn == nil {
		return nil
	}
	err := w.conn.Close()
	w.done.Wait()
	if removed := os.Remove(w.own); removed != nil && !errors.Is(removed, os.ErrNotExist) {
		err = errors.Join(err, removed)
	}
	return err
}
