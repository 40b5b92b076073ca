package nowait

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// ends are what is read from and what is written to.
type ends struct {
	r *os.File
	w *os.File
}

func pipe(t *testing.T) ends {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = r.Close()
		_ = w.Close()
	})
	return ends{r, w}
}

// A message in parts that is longer than the pipe arrives whole, however it is divided between writes that do not wait and reads.
func TestWholeThroughAPipe(t *testing.T) {
	e := pipe(t)
	var want []byte
	for i := range 300_000 {
		want = append(want, byte(i), byte(i>>8))
	}
	buffers := net.Buffers{want[:10], want[10:10], want[10:500_000], want[500_000:]}
	w, r := NewWriter(e.w), Reader(e.r)
	if w == nil || r == io.Reader(e.r) {
		t.Fatal("a pipe of os.Pipe does not block")
	}
	var got []byte
	part := make([]byte, 70_000)
	sent := int64(0)
	for len(buffers) > 0 {
		n, err := w.Write(&buffers)
		sent += n
		if len(buffers) > 0 && !errors.Is(err, ErrWouldWait) || len(buffers) == 0 && err != nil {
			t.Fatalf("%d buffers are left, %v", len(buffers), err)
		}
		read, err := r.Read(part)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, part[:read]...)
	}
	_ = e.w.Close()
	rest, err := io.ReadAll(r)
	if got = append(got, rest...); err != nil || !bytes.Equal(got, want) || sent != int64(len(want)) {
		t.Errorf("%d bytes of %d, %d sent, %v", len(got), len(want), sent, err)
	}
}

func TestReaderWaits(t *testing.T) {
	e := pipe(t)
	r := Reader(e.r)
	got := make(chan string)
	go func() {
		b := make([]byte, 10)
		n, err := r.Read(b)
		if err != nil {
			t.Error(err)
		}
		got <- string(b[:n])
	}()
	if _, err := e.w.WriteString("late"); err != nil {
		t.Fatal(err)
	}
	if text := <-got; text != "late" {
		t.Errorf("got %q", text)
	}
}

// Deadlines and closing act as on the file.
func TestReaderEnds(t *testing.T) {
	e := pipe(t)
	r := Reader(e.r)
	if err := e.r.SetReadDeadline(time.Now().Add(-time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after the deadline: %v", err)
	}
	if err := e.r.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() {
		_, err := r.Read(make([]byte, 1))
		ended <- err
	}()
	_ = e.r.Close()
	if err := <-ended; !errors.Is(err, os.ErrClosed) {
		t.Errorf("closed meanwhile: %v", err)
	}
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, os.ErrClosed) {
		t.Errorf("closed before: %v", err)
	}
	if _, err := NewWriter(e.w).Write(&net.Buffers{[]byte("x")}); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("nobody reads: %v", err)
	}
}

// What blocks is not taken.
func TestFilesThatBlock(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if NewWriter(file) != nil || Reader(file) != io.Reader(file) || NewWriter(&bytes.Buffer{}) != nil {
		t.Error("a file on the disk, which blocks, or what is no file was taken")
	}
}

func TestSocket(t *testing.T) {
	listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	there, err := net.Dial("unix", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	here, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	w := NewWriter(here)
	if w == nil {
		t.Fatal("a socket does not block")
	}
	if _, err := w.Write(&net.Buffers{[]byte("one "), []byte("two")}); err != nil {
		t.Fatal(err)
	}
	_ = here.Close()
	if text, err := io.ReadAll(there); err != nil || string(text) != "one two" {
		t.Errorf("read %q, %v", text, err)
	}
	if _, err := w.Write(&net.Buffers{[]byte("x")}); !errors.Is(err, os.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}
