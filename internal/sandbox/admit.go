package sandbox

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"
)

// firstEntrance is the first file descriptor of an init that is a socket which leads into its
// space.
const firstEntrance = 6

// acceptPause is how long connections wait when there is no file descriptor left for one.
const acceptPause = 100 * time.Millisecond

// visits are the connections into a space.
type visits struct {
	over      chan struct{} // closed when the space ends
	listeners []net.Listener
	running   sync.WaitGroup // goroutines that accept connections and attend to programs
}

// admit begins to accept the connections into the space. Until then they wait.
func (in *initProcess) admit() *SetupError {
	for _, e := range in.Exposes {
		if failed := in.visits.accept(e.Socket, func(c *net.UnixConn) {
			if in.Remote != nil {
				in.visits.running.Go(func() { in.attend(c, in.Remote.visit(e.Port)) })
				return
			}
			// It runs for as long as the init lives, as a forward does.
			go join(c, func() (net.Conn, error) { return dialInside(e.Port) })
		}); failed != nil {
			return failed
		}
	}
	for _, s := range in.Spawns {
		if failed := in.visits.accept(s.Socket, func(c *net.UnixConn) {
			in.visits.running.Go(func() { in.attend(c, s) })
		}); failed != nil {
			return failed
		}
	}
	return nil
}

// accept gives every connection to the next socket to serve, until the space ends.
func (v *visits) accept(socket string, serve func(*net.UnixConn)) *SetupError {
	file := os.NewFile(uintptr(firstEntrance+len(v.listeners)), socket)
	listener, err := net.FileListener(file)
	_ = file.Close() // the listener has its own copy
	if err != nil {
		return &SetupError{Stage: StageForward, Command: "listen to " + socket, Err: err}
	}
	v.listeners = append(v.listeners, listener)
	v.running.Go(func() {
		for {
			c, err := listener.Accept()
			switch {
			case err == nil:
				serve(c.(*net.UnixConn))
			case errors.Is(err, net.ErrClosed):
				return
			default:
				select { // nothing tells when a file descriptor is free again
				case <-v.over:
				case <-time.After(acceptPause):
				}
			}
		}
	})
	return nil
}

// dismiss ends everything that serves connections into the space. The channel is closed when it has
// ended.
func (v *visits) dismiss() <-chan struct{} {
	close(v.over)
	for _, l := range v.listeners {
		_ = l.Close() // accepts nothing more in either case
	}
	gone := make(chan struct{})
	go func() {
		v.running.Wait()
		close(gone)
	}()
	return gone
}

// dialInside connects to a port of the loopback. A server that listens to "localhost" may be on
// either address.
func dialInside(port int) (net.Conn, error) {
	c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		c, err = net.Dial("tcp", fmt.Sprintf("[::1]:%d", port))
	}
	return c, err
}
