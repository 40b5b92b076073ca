package container

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/container/inside"
	"github.com/evalrun/evalrun/internal/sandbox"
)

// openTestBridge opens a bridge from a port of the loopback to a socket whose connections serve gets,
// with both of its ends in this process.
func openTestBridge(t *testing.T, serve func(*net.UnixConn)) (dial func() *net.TCPConn, b *bridge) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { serve(c.(*net.UnixConn)) })
		}
	})
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := free.Addr().(*net.TCPAddr).Port
	_ = free.Close()
	b = newBridge([]sandbox.Forward{{Port: port, Socket: socket}}, func(ctx context.Context, line io.ReadWriter) error {
		in, out := io.Pipe()
		context.AfterFunc(ctx, func() { _ = in.Close() })
		go func() { _, err := io.Copy(out, line); _ = out.CloseWithError(err) }()
		return inside.Listen([]string{strconv.Itoa(port)}, in, line)
	})
	t.Cleanup(func() {
		if err := b.close(); err != nil {
			t.Error(err)
		}
		_ = l.Close()
		serving.Wait()
	})
	select {
	case <-b.ready:
	case <-b.ended:
		t.Fatal(b.err)
	}
	return func() *net.TCPConn {
		c, err := net.Dial("tcp", fmt.Sprint("127.0.0.1:", port))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		return c.(*net.TCPConn)
	}, b
}

// Given several connections that send much, end their requests and wait for the answers, then each
// gets its own, also while another one is not read from or to.
func TestConnectionsOverABridge(t *testing.T) {
	t.Parallel()
	stuck := make(chan struct{})
	dial, _ := openTestBridge(t, func(c *net.UnixConn) {
		defer func() { _ = c.Close() }()
		first := make([]byte, 1)
		if _, err := io.ReadFull(c, first); err != nil {
			return
		}
		if first[0] == 's' {
			<-stuck
			return
		}
		sum := sha256.New()
		_, _ = io.Copy(sum, c) // until the other side has ended its direction
		_, _ = io.Copy(c, bytes.NewReader(bytes.Repeat(sum.Sum(nil), 100_000)))
	})
	t.Cleanup(func() { close(stuck) })
	blocked := dial()
	_ = blocked.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
	if n, err := blocked.Write(append([]byte{'s'}, make([]byte, 64<<20)...)); err == nil {
		t.Fatalf("all of %d bytes were taken, although nobody reads them", n)
	}
	var all sync.WaitGroup
	for i := range 20 {
		c := dial()
		all.Go(func() {
			sent := bytes.Repeat([]byte{byte(i)}, 1<<20)
			if _, err := c.Write(append([]byte{'x'}, sent...)); err != nil {
				t.Error(err)
			}
			want := sha256.Sum256(sent)
			err := c.CloseWrite()
			got, failed := io.ReadAll(c)
			if err != nil || failed != nil || !bytes.Equal(got, bytes.Repeat(want[:], 100_000)) {
				t.Errorf("connection %d: %v, %v, %d bytes", i, err, failed, len(got))
			}
		})
	}
	all.Wait()
}

// A connection that the server ends, or to which nobody listens, is ended for the client too; so is
// every one that is open when the bridge is closed.
func TestConnectionsThatEnd(t *testing.T) {
	t.Parallel()
	dial, b := openTestBridge(t, func(c *net.UnixConn) {
		first := make([]byte, 1)
		if _, err := io.ReadFull(c, first); err == nil && first[0] == 'w' {
			_, _ = io.WriteString(c, "waits")
			_, _ = c.Read(first)
		}
		_ = c.Close()
	})
	ended := dial()
	if _, err := ended.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := ended.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("of a connection that the server has ended: %v", err)
	}
	waits := dial()
	if _, err := waits.Write([]byte("w")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(waits, make([]byte, len("waits"))); err != nil {
		t.Fatal(err)
	}
	if err := b.close(); err != nil {
		t.Fatal(err)
	}
	var timeout net.Error
	if _, err := waits.Read(make([]byte, 1)); err == nil || errors.As(err, &timeout) && timeout.Timeout() {
		t.Errorf("after the end of the bridge: %v", err)
	}
}
