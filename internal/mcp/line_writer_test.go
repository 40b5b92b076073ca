package mcp

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
)

// writerEnds are a line writer and who reads what it writes.
type writerEnds struct {
	*lineWriter
	r      io.ReadCloser
	failed chan error
}

// throughAll runs a test with a pipe of the system and with one in memory.
func throughAll(t *testing.T, test func(t *testing.T, w writerEnds)) {
	run := func(name string, r io.ReadCloser, out io.WriteCloser) {
		t.Run(name, func(t *testing.T) {
			var running sync.WaitGroup
			w := writerEnds{r: r, failed: make(chan error, 1)}
			w.lineWriter = newLineWriter(out, func(f func()) bool { running.Go(f); return true }, func(err error) { w.failed <- err })
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

func note(text string) *outLine {
	return newOutLine(&message{method: "n", params: []byte(`"` + text + `"`)})
}

// Lines of several come whole and each one's in their order.
func TestLineWriterKeepsOrder(t *testing.T) {
	const putters, each = 4, 100
	throughAll(t, func(t *testing.T, w writerEnds) {
		for p := range putters {
			go func() {
				for i := range each {
					long := strings.Repeat("x", (i%3)*16<<10)
					if err := w.put(note(fmt.Sprintf("%d %d %s", p, i, long))); err != nil {
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
			m, err := parseMessage(line)
			if err != nil {
				t.Fatalf("%.100s: %v", line, err)
			}
			var p, i int
			if _, err := fmt.Sscanf(string(m.params), `"%d %d `, &p, &i); err != nil || next[p] != i {
				t.Fatalf("%.20s comes where %d should (%v)", m.params, next[p], err)
			}
			if want := (i % 3) * 16 << 10; strings.Count(string(m.params), "x") != want {
				t.Errorf("%.20s is not %d long", m.params, want)
			}
			next[p]++
		}
		w.wait(t.Context())
		if left := w.waiting(); left != 0 {
			t.Errorf("%d bytes wait", left)
		}
	})
}

// Nobody waits for who does not read. What has not begun to be written can be taken back, and only that.
func TestLineWriterDoesNotWait(t *testing.T) {
	throughAll(t, func(t *testing.T, w writerEnds) {
		long := strings.Repeat("x", 1<<20)
		begun, taken, kept := note("begun"+long), note("taken"), note("kept")
		for _, l := range []*outLine{begun, taken, kept} {
			if err := w.put(l); err != nil {
				t.Fatal(err)
			}
		}
		in := bufio.NewReaderSize(w.r, 16)
		if _, err := in.Peek(1); err != nil { // it has begun
			t.Fatal(err)
		}
		if w.withdraw(begun) || !w.withdraw(taken) || w.withdraw(taken) {
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

// A writer that fails says so to everybody: how much of a line has gone, and that nothing is taken any more.
func TestLineWriterFails(t *testing.T) {
	throughAll(t, func(t *testing.T, w writerEnds) {
		var mu sync.Mutex
		var said []string
		over := make(chan struct{}, 3)
		put := func(name, text string) {
			l := note(text)
			l.done = func(sent int, err error) {
				mu.Lock()
				said = append(said, fmt.Sprintf("%s: begun %v, failed %v", name, sent > 0, err != nil))
				mu.Unlock()
				over <- struct{}{}
			}
			if err := w.put(l); err != nil {
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
		if err == nil || !errors.Is(w.failure(), err) || w.put(note("late")) == nil {
			t.Errorf("failed with %v, failure is %v", err, w.failure())
		}
		w.wait(t.Context())
	})
}

// How long a message is does not count against a client that reads: what waits is what has not begun to be written.
func TestLineWriterCountsWhatWaits(t *testing.T) {
	throughAll(t, func(t *testing.T, w writerEnds) {
		long, short := note(strings.Repeat("x", 9<<20)), note("short")
		if err := w.put(long); err != nil {
			t.Fatal(err)
		}
		in := bufio.NewReader(w.r)
		if _, err := in.Peek(1); err != nil { // it has begun
			t.Fatal(err)
		}
		if waits := w.waiting(); waits != 0 {
			t.Errorf("%d bytes wait", waits)
		}
		if err := w.put(short); err != nil || w.waiting() != len(short.text) {
			t.Errorf("%d bytes wait, %v; want %d", w.waiting(), err, len(short.text))
		}
		for range 2 {
			if _, err := in.ReadBytes('\n'); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// What has not begun to be written when the connection ends may be sent again, and what has begun may not.
func TestClientTellsWhatWasUnsent(t *testing.T) {
	throughAll(t, func(t *testing.T, w writerEnds) {
		c := newClient(ClientOptions{})
		c.era = Legacy
		l := &stdioLink{c: c, rwc: struct {
			io.ReadCloser
			io.Writer
		}{w.r, w.w}, out: w.lineWriter, release: func() {}}
		c.link = l
		long := Call{Method: MethodToolsCall, Params: json.RawMessage(`{"name":"` + strings.Repeat("x", 1<<20) + `"}`)}
		begun := clientGo(t.Context(), c, long)
		if _, err := io.ReadFull(w.r, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		queued := clientGo(t.Context(), c, clientCallTool("echo", `{}`))
		for w.waiting() == 0 {
			runtime.Gosched()
		}
		_ = c.end(clientGone("it has closed its stdout"), false)
		late := clientGo(t.Context(), c, clientCallTool("echo", `{}`))
		for name, test := range map[string]struct {
			outcome clientResult
			unsent  bool
		}{"begun": {clientAwait(t, begun), false}, "queued": {clientAwait(t, queued), true}, "late": {clientAwait(t, late), true}} {
			if err := test.outcome.err; !errors.Is(err, ErrClosed) || errors.Is(err, ErrUnsent) != test.unsent {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}
