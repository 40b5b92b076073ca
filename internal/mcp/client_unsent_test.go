package mcp

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/jsonrpc"
	"github.com/evalrun/evalrun/internal/testenv"
)

// What has not begun to be written when the connection ends may be sent again, and what has begun
// may not.
func TestClientTellsWhatWasUnsent(t *testing.T) {
	test := func(t *testing.T, r io.ReadCloser, w io.WriteCloser) {
		defer w.Close()
		defer r.Close()
		c := newClient(ClientOptions{}, Legacy, 0)
		out := jsonrpc.NewWriter(w, jsonrpc.WriterOptions{Spawn: c.life.spawn})
		l := &stdioLink{c: c, rwc: struct {
			io.ReadCloser
			io.Writer
		}{r, w}, out: out, release: func() {}}
		c.link = l
		long := Call{Method: MethodToolsCall, Params: json.RawMessage(`{"name":"` + strings.Repeat("x", 1<<20) + `"}`)}
		begun := clientGo(t.Context(), c, long)
		if _, err := io.ReadFull(r, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		queued := clientGo(t.Context(), c, clientCallTool("echo", `{}`))
		if !testenv.Eventually(func() bool { return out.Queued() > 0 }) {
			t.Fatal("the second call is not in the queue")
		}
		_ = c.end(clientGone("it has closed its stdout"), false)
		late := clientGo(t.Context(), c, clientCallTool("echo", `{}`))
		for name, test := range map[string]struct {
			outcome clientResult
			unsent  bool
		}{"begun": {testenv.Receive(t, begun), false}, "queued": {testenv.Receive(t, queued), true}, "late": {testenv.Receive(t, late), true}} {
			if err := test.outcome.err; !errors.Is(err, ErrClosed) || errors.Is(err, ErrUnsent) != test.unsent {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	pipe := func(t *testing.T) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		test(t, r, w)
	}
	t.Run("file", pipe)
	t.Run("memory", func(t *testing.T) {
		r, w := io.Pipe()
		test(t, r, w)
	})
}
