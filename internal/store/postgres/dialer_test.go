package postgres

import (
	"net"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

func TestConnectionsEndInSilence(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has a limit for what is not acknowledged")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := newDialer().DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var limit int
	var asked error
	if err := raw.Control(func(fd uintptr) {
		limit, asked = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, tcpUserTimeout)
	}); err != nil || asked != nil || limit != int(silence.Milliseconds()) {
		t.Errorf("%d ms, %v, %v", limit, err, asked)
	}
}
