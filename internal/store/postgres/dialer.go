package postgres

import (
	"net"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// silence is how long a server may not answer a packet before its connection is lost.
const silence = 20 * time.Second

// tcpUserTimeout is unix.TCP_USER_TIMEOUT, which only Linux has.
const tcpUserTimeout = 18

// newDialer makes a dialer whose connections end when the server can no longer be reached. While
// something was sent and is not acknowledged there are no keepalives, and Linux would go on sending
// it for a quarter of an hour.
func newDialer() *net.Dialer {
	return &net.Dialer{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: silence / 4, Interval: silence / 4, Count: 3},
		Control: func(network, _ string, c syscall.RawConn) error {
			if runtime.GOOS != "linux" || network == "unix" {
				return nil
			}
			return c.Control(func(fd uintptr) {
				ms := int(silence.Milliseconds())
				_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, tcpUserTimeout, ms) // without it, it takes longer
			})
		},
	}
}
