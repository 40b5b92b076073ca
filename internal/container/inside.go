package container

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/evalrun/evalrun/internal/sandbox"
)

// insideCommand is the hidden command of evalrun's own program in a container. Its first argument is
// one of the following words.
const insideCommand = "container-inside"

const (
	insideBridge  = "bridge"  // PORT...: the other end of a bridge, on stdin and stdout
	insideConnect = "connect" // PORT: connects stdin and stdout with a port
	insideAwait   = "await"   // ADDRESS: waits until it accepts a connection
	insideOwner   = "owner"   // prints the numbers of its user and group
	insideEnd     = "end"     // SCOPE: ends the processes of a scope
	insidePack    = "pack"    // writes an archive of what stdin says
	insideRemove  = "remove"  // removes what stdin says
)

// insideMain does not return.
func insideMain(what string, args []string) {
	var err error
	switch {
	case what == insideOwner:
		_, err = fmt.Println(os.Getuid(), os.Getgid())
	case what == insidePack:
		err = packInside(os.Stdin, os.Stdout)
	case what == insideRemove:
		err = removeInside(os.Stdin)
	case what == insideBridge:
		err = listenInside(args, os.Stdin, os.Stdout)
	case what == insideConnect && len(args) == 1:
		err = connectInside(args[0])
	case what == insideAwait && len(args) == 1:
		err = awaitInside(args[0])
	case what == insideEnd && len(args) == 1:
		endInside(args[0])
	default:
		err = errors.New("this is for evalrun's own use")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "evalrun:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// listenInside listens to ports of the loopback, and makes a request of every connection, until its
// input ends.
func listenInside(ports []string, in io.Reader, out io.Writer) error {
	var listeners []net.Listener
	for _, port := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:"+port)
		if err != nil {
			return err
		}
		defer func() { _ = l.Close() }()
		listeners = append(listeners, l)
	}
	line, theirs := net.Pipe()
	defer func() { _, _ = line.Close(), theirs.Close() }() // it ends all connections
	ended := make(chan error, 2)
	go func() { _, err := io.Copy(theirs, in); ended <- err }()
	go func() { _, err := io.Copy(out, theirs); ended <- err }()
	one := make(chan net.Conn, 1)
	one <- line
	transport := &http.Transport{DisableCompression: true, Protocols: &http.Protocols{},
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			select {
			case c := <-one:
				return c, nil
			default:
				return nil, errors.New("there are too many connections")
			}
		}}
	transport.Protocols.SetUnencryptedHTTP2(true)
	answer, err := ask(transport, readyPath, http.NoBody)
	if err != nil {
		return err
	}
	_ = answer.Body.Close() // it is empty
	for i, l := range listeners {
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					ended <- err
					return
				}
				go carry(transport, c.(*net.TCPConn), "/"+ports[i]) //nolint:forcetypeassert // of a TCP listener
			}
		}()
	}
	return <-ended
}

func ask(transport *http.Transport, path string, body io.Reader) (*http.Response, error) {
	r, err := http.NewRequest(http.MethodPost, "http://evalrun"+path, body)
	if err != nil {
		return nil, err
	}
	return transport.RoundTrip(r)
}

// carry makes a request of a connection: what comes is its body, what goes is that of its answer.
func carry(transport *http.Transport, c *net.TCPConn, path string) {
	defer func() { _ = c.Close() }()
	answer, err := ask(transport, path, upload{c})
	if err != nil {
		return
	}
	if answer.StatusCode == http.StatusOK {
		_, _ = io.Copy(c, answer.Body) // an error ends the connection, as an end does
	}
	_ = c.Close()
	_ = answer.Body.Close()
}

// upload is the body of a request that is what a connection brings. Its Close ends a Read, and leaves
// the other direction as it is.
type upload struct{ c *net.TCPConn }

func (u upload) Read(p []byte) (int, error) { return u.c.Read(p) }
func (u upload) Close() error               { return u.c.CloseRead() }

// connectInside connects stdin and stdout with a port.
func connectInside(port string) error {
	c, err := net.Dial("tcp", "127.0.0.1:"+port)
	if err != nil {
		if c, err = net.Dial("tcp", "[::1]:"+port); err != nil {
			return err
		}
	}
	go func() {
		_, _ = io.Copy(c, os.Stdin)
		_ = c.(*net.TCPConn).CloseWrite() //nolint:forcetypeassert // of TCP
	}()
	_, err = io.Copy(os.Stdout, c)
	return err
}

// longestWait bounds the time of a program that waits for an address, and that nobody ends.
const longestWait = time.Hour

// awaitInside waits until an address accepts a connection.
func awaitInside(address string) error {
	until := time.Now().Add(longestWait)
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, 500*time.Millisecond) {
		c, err := net.Dial("tcp", address)
		if err == nil {
			return c.Close()
		}
		if time.Now().After(until) {
			return err
		}
		time.Sleep(pause) // nothing tells when somebody begins to listen
	}
}

// endInside asks the processes of a scope to end, and ends them after the grace.
func endInside(scope string) {
	for _, pid := range inScope(scope) {
		_ = syscall.Kill(pid, syscall.SIGTERM) // it may have ended meanwhile
	}
	until := time.Now().Add(sandbox.DefaultGrace)
	for left := inScope(scope); len(left) > 0; left = inScope(scope) {
		if time.Now().After(until) {
			for _, pid := range left {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
			return
		}
		time.Sleep(10 * time.Millisecond) // nobody tells of the end of processes that are not our own
	}
}

// inScope finds the processes of a scope.
func inScope(scope string) (pids []int) {
	found, _ := filepath.Glob("/proc/[0-9]*/environ") // the pattern is valid
	for _, file := range found {
		env, err := os.ReadFile(file)
		pid, failed := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err == nil && failed == nil && pid != os.Getpid() &&
			bytes.Contains(append([]byte{0}, env...), []byte("\x00"+sandbox.ScopeVar+"="+scope+"\x00")) {
			pids = append(pids, pid)
		}
	}
	return pids
}
