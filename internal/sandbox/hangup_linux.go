package sandbox

import (
	"errors"
	"net"

	"golang.org/x/sys/unix"
)

// awaitHangup waits until both directions of a connection are closed, by either side, whatever has
// still to be read. The end of the input alone cannot show that a client has gone while a program
// does not read what it had sent.
func awaitHangup(c *net.UnixConn, _ <-chan struct{}) {
	raw, err := c.SyscallConn()
	if err != nil {
		return // closed
	}
	_ = raw.Control(func(fd uintptr) { // fails for a closed connection only
		for {
			if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd)}}, -1); !errors.Is(err, unix.EINTR) {
				return
			}
		}
	})
}
