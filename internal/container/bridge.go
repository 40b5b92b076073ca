package container

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"

	"github.com/evalrun/evalrun/internal/container/inside"
	"github.com/evalrun/evalrun/internal/docker"
	"github.com/evalrun/evalrun/internal/sandbox"
)

// bridge leads ports of a container's loopback to sockets of this machine, over the streams of one
// program in the container. Every connection is a request of HTTP/2, whose two bodies are the two
// directions: so each has an end and a window of its own.
type bridge struct {
	sockets map[string]string // by the path of the request, which is the port
	ready   chan struct{}
	told    sync.Once
	server  *http.Server
	line    net.Conn // our end
	cancel  context.CancelFunc
	ended   chan struct{} // closed when the program in the container has ended
	err     error         // why, when it has
}

// maxConnections is how many connections a bridge has at the same time.
const maxConnections = 4096

// openBridge starts the program in the container, and returns when it listens to all ports.
func (r *Remote) openBridge(ctx context.Context, forwards []sandbox.Forward) (*bridge, error) {
	args := []string{sandbox.InsideExecutable, inside.Bridge}
	for _, f := range forwards {
		args = append(args, strconv.Itoa(f.Port))
	}
	b := newBridge(forwards, func(ctx context.Context, line io.ReadWriter) error {
		var said beginning
		status, err := r.daemon.Run(ctx, r.id, docker.Exec{Cmd: args, User: "0:0", WorkingDir: "/"},
			docker.Streams{In: line, Out: line, Err: &said})
		if err == nil {
			err = fmt.Errorf("exit status %d: %s", status, said.String())
		}
		return err
	})
	var err error
	select {
	case <-b.ready:
		return b, nil
	case <-b.ended:
		err = b.err
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	return nil, errors.Join(fmt.Errorf("the way from the container to evalrun: %w", err), b.close())
}

// newBridge makes a bridge over the stdin and stdout of a program that run runs until ctx is done.
func newBridge(forwards []sandbox.Forward, run func(ctx context.Context, line io.ReadWriter) error) *bridge {
	b := &bridge{sockets: map[string]string{}, ready: make(chan struct{}), ended: make(chan struct{})}
	for _, f := range forwards {
		b.sockets["/"+strconv.Itoa(f.Port)] = f.Socket
	}
	running, cancel := context.WithCancel(context.Background())
	ours, theirs := net.Pipe()
	b.line, b.cancel = ours, cancel
	b.server = &http.Server{Handler: b, Protocols: &http.Protocols{}, HTTP2: &http.HTTP2Config{
		MaxConcurrentStreams: maxConnections, MaxReceiveBufferPerStream: 256 << 10, MaxReceiveBufferPerConnection: 64 << 20}}
	b.server.Protocols.SetUnencryptedHTTP2(true)
	go func() { _ = b.server.Serve(listenerOf(ours)) }() // until close
	go func() {
		defer close(b.ended)
		b.err = run(running, theirs)
		_ = theirs.Close()
	}()
	return b
}

// close ends all connections. The program in the container ends with its input.
func (b *bridge) close() error {
	if b == nil {
		return nil
	}
	err := b.server.Close()
	_ = b.line.Close() // the server has closed it, if it had it yet
	b.cancel()
	<-b.ended
	return err
}

// ServeHTTP serves one connection of the container.
func (b *bridge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	socket, ok := b.sockets[r.URL.Path]
	if !ok {
		if r.URL.Path == inside.ReadyPath {
			b.told.Do(func() { close(b.ready) })
		}
		return
	}
	conn, err := (&net.Dialer{}).DialContext(r.Context(), "unix", socket)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	out := conn.(*net.UnixConn) //nolint:forcetypeassert // of a Unix socket
	defer func() { _ = out.Close() }()
	stop := context.AfterFunc(r.Context(), func() { _ = out.Close() }) // the container's end of it is gone
	defer stop()
	c := http.NewResponseController(w)
	if c.Flush() != nil {
		return
	}
	var sent sync.WaitGroup
	sent.Go(func() {
		if _, err := io.Copy(out, r.Body); err != nil {
			_ = out.Close()
			return
		}
		_ = out.CloseWrite()
	})
	buffer := make([]byte, 32<<10)
	for {
		n, err := out.Read(buffer)
		if n > 0 {
			if _, failed := w.Write(buffer[:n]); failed != nil || c.Flush() != nil {
				_ = out.Close()
				break
			}
		}
		if err != nil {
			break
		}
	}
	_ = out.Close() // what the container still sends has nobody who reads it: the other side has ended
	_ = r.Body.Close()
	sent.Wait()
}

// oneConn is a listener with one connection.
type oneConn struct {
	conn chan net.Conn
	once sync.Once
	over chan struct{}
}

func listenerOf(c net.Conn) *oneConn {
	l := &oneConn{conn: make(chan net.Conn, 1), over: make(chan struct{})}
	l.conn <- c
	return l
}

func (o *oneConn) Accept() (net.Conn, error) {
	select {
	case c := <-o.conn:
		return c, nil
	case <-o.over:
		return nil, net.ErrClosed
	}
}

func (o *oneConn) Close() error {
	o.once.Do(func() { close(o.over) })
	return nil
}

func (o *oneConn) Addr() net.Addr { return &net.UnixAddr{Name: "container", Net: "unix"} }
