// Package wake lets the processes of one machine tell each other that there is something to look at,
// by datagrams to the sockets of a folder. It knows nothing of what the messages say.
package wake

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/google/uuid"
)

// maxSocketPath is the longest path of a Unix socket on Linux and macOS, less one for the zero
// byte.
const maxSocketPath = 103

const socketExt = ".sock"

// Socket is the socket of this process in a folder. What is told is a hint: a process that missed it
// looks by itself after 5 s at the latest.
type Socket struct {
	dir      string
	own      string
	conn     *net.UnixConn
	received func(message string)
	done     sync.WaitGroup
}

// Listen makes this process's own socket, and calls received with each message that comes.
func Listen(dir string, received func(message string)) (*Socket, error) {
	w := &Socket{dir: dir, received: received}
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

func (w *Socket) receive() {
	defer w.done.Done()
	buf := make([]byte, maxMessage)
	for {
		n, err := w.conn.Read(buf)
		if err != nil {
			return // closed
		}
		w.received(string(buf[:n]))
	}
}

// maxMessage is how long a message may be.
const maxMessage = 512

// others are the sockets in a folder but for the own one.
func others(dir, own string) (paths []string) {
	names, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, e := range names {
		path := filepath.Join(dir, e.Name())
		if path != own && len(path) <= maxSocketPath && filepath.Ext(path) == socketExt {
			paths = append(paths, path)
		}
	}
	return paths
}

// removeStale removes the sockets of processes that were killed.
func (w *Socket) removeStale() {
	for _, path := range others(w.dir, w.own) {
		conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
		if err != nil {
			removeIfDead(path, err)
			continue
		}
		_ = conn.Close()
	}
}

// Tell sends a message to every other process that listens in the folder.
func (w *Socket) Tell(message string) { tell(w.dir, w.own, message) }

// Tell sends a message to every process that listens in a folder.
func Tell(dir, message string) { tell(dir, "", message) }

func tell(dir, own, message string) {
	for _, path := range others(dir, own) {
		conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
		if err != nil {
			removeIfDead(path, err)
			continue
		}
		_ = conn.SetWriteDeadline(time.Now().Add(10 * time.Millisecond)) // a full buffer means that it will wake anyway
		_, _ = conn.Write([]byte(message))
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

// Close removes the socket.
func (w *Socket) Close() error {
	if w == nil || w.conn == nil {
		return nil
	}
	err := w.conn.Close()
	w.done.Wait()
	if removed := os.Remove(w.own); removed != nil && !errors.Is(removed, os.ErrNotExist) {
		err = errors.Join(err, removed)
	}
	return err
}
