package gateway_test

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/gateway/tasks"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/sqlite"
	"github.com/evalrun/evalrun/internal/testenv"
)

// slowServer is a server over stdio that does not answer calls with "wait" in them; it tells of
// them and of what is cancelled.
type slowServer struct {
	rawServer
	waiting, cancelled chan string
}

// stdioClient is a client over stdio of a gateway in front of a slow server.
type stdioClient struct {
	*rawClient
	server *slowServer
	access *gateway.Access
}

// eachOverStdio runs a test for both eras, with a gateway that only passes on and with one that
// gives tasks. timeout is that of calls.
func eachOverStdio(t *testing.T, timeout time.Duration, test func(t *testing.T, c stdioClient)) {
	for _, era := range []mcp.Era{mcp.Legacy, mcp.Modern} {
		for _, withTasks := range []bool{false, true} {
			t.Run(fmt.Sprint(era, ", tasks: ", withTasks), func(t *testing.T) {
				t.Parallel()
				s := &slowServer{waiting: make(chan string, 10), cancelled: make(chan string, 10)}
				s.era = era
				s.serve = func(q *rawRequest) string {
					if !strings.Contains(string(q.Params), "wait") {
						return echo(q)
					}
					s.waiting <- string(q.ID)
					<-q.ctx.Done()
					return ""
				}
				s.notified = func(m rawMessage) {
					if m.Method == "notifications/cancelled" {
						s.cancelled <- string(m.Params)
					}
				}
				g := gateway.New()
				o := gateway.AccessOptions{Servers: []gateway.Server{{Name: "raw", Target: s.target(t, "stdio"), Timeout: timeout}}}
				if withTasks {
					st, err := sqlite.Open(t.TempDir(), store.Options{})
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { _ = st.Close() })
					if o.Tasks, err = tasks.New(tasks.Options{Store: st}, nil); err != nil {
						t.Fatal(err)
					}
				}
				t.Cleanup(func() {
					if err := g.Close(); err != nil {
						t.Error(err)
					}
				})
				a, err := g.Open(o)
				if err != nil {
					t.Fatal(err)
				}
				test(t, stdioClient{newClient(t, a, "stdio", &rawClient{era: era}), s, a})
			})
		}
	}
}

// wait begins a call that is not answered, and gives the id that the server knows it by.
func (c *stdioClient) wait(t *testing.T) (answer <-chan rawMessage, id string) {
	answer = c.begin("tools/call", c.params(`"name":"echo","arguments":{"what":"wait"}`, ""))
	return answer, testenv.Receive(t, c.server.waiting, "the call")
}

// A client that cancels a call gets no answer to it, and the server hears of it under its own id.
func TestCancelledOverStdio(t *testing.T) {
	eachOverStdio(t, 0, func(t *testing.T, c stdioClient) {
		echoes(t, c.rawClient, `{"a":1}`) // its id shows that ids of client and server differ
		answer, id := c.wait(t)
		c.notify("notifications/cancelled", fmt.Sprintf(`{"requestId":"raw-%d","reason":"enough"}`, c.lastID.Load()))
		if params := testenv.Receive(t, c.server.cancelled, "the cancellation"); !strings.Contains(params, `"requestId":`+id) {
			t.Errorf("the server was told %s, not of %s", params, id)
		}
		echoes(t, c.rawClient, `{"a":2}`)
		select {
		case m := <-answer:
			t.Errorf("the cancelled call was answered: %s %s", m.Result, m.Error)
		default:
		}
	})
}

// A call of which nothing is heard for too long fails, and others go on.
func TestSilenceOverStdio(t *testing.T) {
	eachOverStdio(t, 200*time.Millisecond, func(t *testing.T, c stdioClient) {
		answer, id := c.wait(t)
		fails(t, testenv.Receive(t, answer, "the answer"), "raw", "too long", "200ms")
		if params := testenv.Receive(t, c.server.cancelled, "the cancellation"); !strings.Contains(params, `"requestId":`+id) || !strings.Contains(params, "too long") {
			t.Errorf("the server was told %s of %s", params, id)
		}
		echoes(t, c.rawClient, `{"a":1}`)
	})
}

// An access that is closed does not wait for what is open, and serves its client no more.
func TestClosedOverStdio(t *testing.T) {
	eachOverStdio(t, 0, func(t *testing.T, c stdioClient) {
		c.wait(t)
		if err := c.access.Close(); err != nil {
			t.Error(err)
		}
		if c.send(`{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`, nil) == nil {
			t.Error("somebody still reads what the client says")
		}
		if err := c.access.ServeStdio(t.Context(), "raw", strings.NewReader(""), io.Discard); err == nil {
			t.Error("another client was served")
		}
	})
}
