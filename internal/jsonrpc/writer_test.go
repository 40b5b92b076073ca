package jsonrpc

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
)

// writerEnds are a writer and who reads what it writes.
type writerEnds struct {
	*Writer
	r      io.ReadCloser
	failed chan error
}

// throughAll runs a test with a pipe of the system and with one in memory.
func throughAll(t *testing.T, test func(t *testing.T, w writerEnds)) {
	run := func(name string, r io.ReadCloser, out io.WriteCloser) {
		t.Run(name, func(t *testing.T) {
			var running sync.WaitGroup
			w := writerEnds{r: r, failed: make(chan error, 1)}
			w.Writer = NewWriter(out, WriterOptions{Spawn: func(f func()) bool { running.Go(f); return true }, Failed: func(err error) { w.failed <- err }})
			test(t, w)
			_ = r.Close()
			_ = out.Close()
			running.Wait()
		})
	}
	fr, fw, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	run("file", fr, fw)
	pr, pw := io.Pipe()
	run("memory", pr, pw)
}

func note(text string) *Line {
	m := Message{Method: "n", Params: []byte(`"` + text + `"`)}
	return NewLine(m.Encode())
}

// Lines of several come whole and each one's in their order.
func TestWriterKeepsOrder(t *testing.T) {
	const putters, each = 4, 100
	throughAll(t, func(t *testing.T, w writerEnds) {
		for p := range putters {
			go func() {
				for i := range each {
					long := strings.Repeat("x", (i%3)*16<<10)
					if err := w.Put(note(fmt.Sprintf("%d %d %s", p, i, long))); err != nil {
						t.Error(err)
					}
				}
			}()
		}
		in := bufio.NewReader(w.r)
		var next [putters]int
		for range putters * each {
			line, err := in.ReadBytes('\n')
			if err != nil {
				t.Fatal(err)
			}
			m, err := Parse(line)
			if err != nil {
				t.Fatalf("%.100s: %v", line, err)
			}
			var p, i int
			if _, err := fmt.Sscanf(string(m.Params), `"%d %d `, &p, &i); err != nil || next[p] != i {
				t.Fatalf("%.20s comes where %d should (%v)", m.Params, next[p], err)
			}
			if want := (i % 3) * 16 << 10; strings.Count(string(m.Params), "x") != want {
				t.Errorf("%.20s is not %d long", m.Params, want)
			}
			next[p]++
		}
		w.Flush(t.Context())
		if left := w.Queued(); left != 0 {
			t.Errorf("%d bytes wait", left)
		}
	})
}

// Nobody waits for who does not read. What has not begun to be written can be taken back, and only
// that.
func TestWriterDoesNotWait(t *testing.T) {
	throughAll(t, func(t *testing.T, w writerEnds) {
		long := strings.Repeat("x", 1<<20)
		begun, taken, kept := note("begun"+long), note("taken"), note("kept")
		for _, l := range []*Line{begun, taken, kept} {
			if err := w.Put(l); err != nil {
				t.Fatal(err)
			}
		}
		in := bufio.NewReaderSize(w.r, 16)
		if _, err := in.Peek(1); err != nil { // it has begun
			t.Fatal(err)
		}
		if w.Withdraw(begun) || !w.Withdraw(taken) || w.Withdraw(taken) {
			t.Error("only what has not begun is taken back, once")
		}
		for _, want := range []string{`"begun` + long, `"kept`} {
			line, err := in.ReadBytes('\n')
			if err != nil || !strings.Contains(string(line), want) {
				t.Fatalf("%.100s, %v; want %.10s", line, err, want)
			}
		}
	})
}

// A writer that fails says so to everybody: how much of a line has gone, and that nothing is taken
// any more.
func TestWriterFails(t *testing.T) {
	throughAll(t, func(t *testing.T, w writerEnds) {
		var mu sync.Mutex
		var said []string
		over := make(chan struct{}, 3)
		put := func(name, text string) {
			l := note(text)
			l.Done = func(sent int, err error) {
				mu.Lock()
				said = append(said, fmt.Sprintf("%s: begun %v, failed %v", name, sent > 0, err != nil))
				mu.Unlock()
				over <- struct{}{}
			}
			if err := w.Put(l); err != nil {
				t.Fatal(err)
			}
		}
		in := bufio.NewReaderSize(w.r, 16)
		put("read", "short")
		if _, err := in.ReadBytes('\n'); err != nil {
			t.Fatal(err)
		}
		<-over
		put("cut", strings.Repeat("x", 1<<20))
		put("queued", "short")
		if _, err := in.ReadByte(); err != nil {
			t.Fatal(err)
		}
		_ = w.r.Close()
		<-over
		<-over
		if want := []string{"read: begun true, failed false", "cut: begun true, failed true", "queued: begun false, failed true"}; !slices.Equal(said, want) {
			t.Errorf("got  %q\nwant %q", said, want)
		}
		err := <-w.failed
		if err == nil || !errors.Is(w.Err(), err) || w.Put(note("late")) == nil {
			t.Errorf("failed with %v, failure is %v", err, w.Err())
		}
		w.Flush(t.Context())
	})
}

// How long a message is does not count against a client that reads: what waits is what has not
// begun to be written.
func TestWriterCountsWhatWaits(t *testing.T) {
	throughAll(t, func(t *testing.T, w writerEnds) {
		long, short := note(strings.Repeat("x", 9<<20)), note("short")
		if err := w.Put(long); err != nil {
			t.Fatal(err)
		}
		in := bufio.NewReader(w.r)
		if _, err := in.Peek(1); err != nil { // it has begun
			t.Fatal(err)
		}
		if waits := w.Queued(); waits != 0 {
			t.Errorf("%d bytes wait", waits)
		}
		if err := w.Put(short); err != nil || w.Queued() != len(short.text) {
			t.Errorf("%d bytes wait, %v; want %d", w.Queued(), err, len(short.text))
		}
		for range 2 {
			if _, err := in.ReadBytes('\n'); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// Close drops what has not begun to be written, and says so; what has begun is written.
func TestWriterClose(t *testing.T) {
	throughAll(t, func(t *testing.T, w writerEnds) {
		begun, queued := note("begun"+strings.Repeat("x", 1<<20)), note("queued")
		closed := errors.New("closed")
		outcome := make(chan error, 2)
		for _, l := range []*Line{begun, queued} {
			l.Done = func(_ int, err error) { outcome <- err }
			if err := w.Put(l); err != nil {
				t.Fatal(err)
			}
		}
		in := bufio.NewReader(w.r)
		if _, err := in.Peek(1); err != nil { // it has begun
			t.Fatal(err)
		}
		w.Close(closed)
		if err := <-outcome; !errors.Is(err, closed) || w.Begun(queued) {
			t.Errorf("the line in the queue: %v", err)
		}
		if line, err := in.ReadBytes('\n'); err != nil || !strings.Contains(string(line), `"begun`) {
			t.Errorf("%.20s, %v", line, err)
		}
		if err := <-outcome; err != nil || !w.Begun(begun) {
			t.Errorf("the line that was being written: %v", err)
		}
		if err := w.Put(note("late")); !errors.Is(err, closed) {
			t.Error(err)
		}
	})
}
