// Package inside is the program that evalrun puts into a container of a daemon: it leads connections to
// evalrun, packs what has changed, and ends processes. It is built for the container's architecture,
// with few imports, and knows nothing of this machine. The words are what package container and the
// program have in common.
package inside

import (
	"bytes"
	"context"
	_ "embed" // for Source
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/sandbox"
)

// The words of the program: the first of its arguments.
const (
	Bridge  = "bridge"  // PORT...: the other end of a bridge, on stdin and stdout
	Connect = "connect" // PORT: connects stdin and stdout with a port
	Await   = "await"   // ADDRESS: waits until it accepts a connection
	Owner   = "owner"   // prints the numbers of its user and group
	End     = "end"     // SCOPE: ends the processes of a scope
	Pack    = "pack"    // writes an archive of what stdin says, which is a Packing
	Remove  = "remove"  // removes the paths of stdin, a list
	source  = "source"  // prints Source
)

// Source is the text of this file. The program has it in it, so that evalrun finds out, without running
// it, whether a program is of its own version.
//
//go:embed inside.go
var Source string

// ReadyPath is the path of the request by which a bridge says that it listens.
const ReadyPath = "/ready"

// Packing says what is packed in a container.
type Packing struct {
	Paths []string // without what is below them
	Trees []string // with what is below them, unless it is among Not or below
	Not   []string
}

// Main does what the arguments of the program say, and returns its exit status.
func Main(args []string) int {
	if err := run(args); err != nil {
		fmt.Fprintln(os.Stderr, "evalrun:", err)
		return 1
	}
	return 0
}

func run(args []string) error {
	if len(args) == 0 {
		args = []string{""}
	}
	what, args := args[0], args[1:]
	switch {
	case what == Owner:
		_, err := fmt.Println(os.Getuid(), os.Getgid())
		return err
	case what == source:
		_, err := io.WriteString(os.Stdout, Source)
		return err
	case what == Pack:
		return pack(os.Stdin, os.Stdout)
	case what == Remove:
		return remove(os.Stdin)
	case what == Bridge:
		return Listen(args, os.Stdin, os.Stdout)
	case what == Connect && len(args) == 1:
		return connect(args[0])
	case what == Await && len(args) == 1:
		return await(args[0])
	case what == End && len(args) == 1:
		end(args[0])
		return nil
	case what == gateway.BridgeCommand && len(args) == 0:
		signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // a client that has gone is a write error
		return gateway.BridgeMain(context.Background(), os.Stdin, os.Stdout)
	}
	return errors.New("evalrun puts this program into the containers of its rollouts, and starts it there")
}

// Listen listens to ports of the loopback, and makes a request of every connection, until its
// input ends.
func Listen(ports []string, in io.Reader, out io.Writer) error {
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
	answer, err := ask(transport, ReadyPath, http.NoBody)
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

// connect connects stdin and stdout with a port.
func connect(port string) error {
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

// await waits until an address accepts a connection.
func await(address string) error {
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

// end asks the processes of a scope to end, and ends them after the grace.
func end(scope string) {
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

// remove removes the paths of a list.
func remove(list io.Reader) error {
	var paths []string
	err := json.NewDecoder(list).Decode(&paths)
	for _, p := range paths {
		if p = path.Clean("/" + p); p != "/" {
			err = errors.Join(err, os.RemoveAll(p))
		}
	}
	return err
}

// IsBelow reports whether a path is one of some, or lies below one.
func IsBelow(p string, of []string) bool {
	return slices.ContainsFunc(of, func(one string) bool { return p == one || strings.HasPrefix(p, one+"/") })
}
