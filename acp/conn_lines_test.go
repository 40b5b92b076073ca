package acp

import (
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/evalrun/evalrun/internal/jsonrpc"
	"github.com/evalrun/evalrun/internal/testenv"
)

// brittle is a pipe to an agent in which the first write gets stuck half way.
type brittle struct {
	io.WriteCloser
	once sync.Once
}

func (b *brittle) Write(p []byte) (n int, err error) {
	b.once.Do(func() {
		n, _ = b.WriteCloser.Write(p[:len(p)/2])
		err = errors.New("half a line")
	})
	if err != nil {
		return n, err
	}
	return b.WriteCloser.Write(p)
}

func TestNothingIsWrittenAfterHalfALine(t *testing.T) {
	theirs, ours, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, agentOut := io.Pipe()
	c := NewConn(&brittle{WriteCloser: ours}, stdout, &client{}, Options{})
	for range 2 {
		if err := c.Notify(testContext(t), "notification", nil); !errors.Is(err, ErrClosed) {
			t.Errorf("got %v", err)
		}
	}
	c.Close()
	agentOut.Close()
	c.Wait()
	if got, err := io.ReadAll(theirs); err != nil || strings.Contains(string(got), "\n") {
		t.Errorf("the agent got %q, %v", got, err)
	}
	theirs.Close()
}

func TestLineThatIsTooLongEndsTheConnection(t *testing.T) {
	const limit = 1000
	fits := chunk(strings.Repeat("x", limit-len(chunk(""))))
	cl := &client{}
	c, p := dial(t, cl, Options{MaxLine: limit})
	result := background(func() error { _, err := c.Prompt(t.Context(), "s", Text("go")); return err })
	p.expect("session/prompt")
	// The pipe holds less than what follows: sending it returns only if it is read to the end.
	p.send(fits + "\n" + fits + " " + strings.Repeat("y", 1<<20) + "\n" + chunk("never") + "\n")
	err := testenv.Receive(t, result)
	if !errors.Is(err, ErrLineTooLong) || errors.Is(err, ErrClosed) || !strings.Contains(err.Error(), "1000 bytes") {
		t.Errorf("got %v", err)
	}
	<-c.Done()
	if got := cl.count(); got != 1 {
		t.Errorf("%d updates were handled, want 1", got)
	}
}

// endless is an agent that never ends its line.
type endless struct{ sent int }

func (e *endless) Read(p []byte) (int, error) {
	if e.sent > 1<<30 {
		return 0, io.EOF
	}
	e.sent += len(p)
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

func TestLineThatIsTooLongIsNotBuffered(t *testing.T) {
	source := &endless{}
	_, err := jsonrpc.NewReader(source, 1<<20).Next()
	if !errors.Is(err, jsonrpc.ErrTooLong) || source.sent > 2<<20 {
		t.Errorf("got %v after %d bytes", err, source.sent)
	}
}

func TestRecordHasEveryLineInOrder(t *testing.T) {
	cl := &client{}
	c, p := dial(t, cl, cl.options(Options{}))
	p.serve(func(m rpc) string {
		p.send("noise\n\n" + chunk("x") + "\n")
		return `{"stopReason":"end_turn"}`
	})
	if _, err := c.Prompt(testContext(t), "s", Text("<go>")); err != nil {
		t.Fatal(err)
	}
	c.Close()
	p.hangUp()
	c.Wait()
	want := []string{
		`> {"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"text","text":"<go>"}]}}`,
		"< noise", "< " + chunk("x"), `< {"jsonrpc":"2.0","id":1,"result":{"stopReason":"end_turn"}}`,
	}
	if !slices.Equal(cl.lines, want) {
		t.Errorf("got\n%s", strings.Join(cl.lines, "\n"))
	}
	if !slices.Equal(cl.noise, []string{"noise"}) {
		t.Errorf("noise is %q", cl.noise)
	}
}
