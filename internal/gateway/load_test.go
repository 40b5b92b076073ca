package gateway_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/testenv"
)

func TestLargeResults(t *testing.T) {
	testenv.NeedLong(t)
	large := `{"text":"` + strings.Repeat("0123456789abcde\\n", 10<<20/17) + `"}`
	for _, upstream := range []string{"http", "stdio", "sse"} {
		for _, downstream := range []string{"http", "stdio", "bridge"} {
			t.Run(upstream+" "+downstream, func(t *testing.T) {
				s := &rawServer{era: mcp.Legacy, serve: echo}
				a := open(t, gateway.Server{Name: "raw", Target: s.target(t, upstream)})
				for _, era := range []mcp.Era{mcp.Legacy, mcp.Modern} {
					c := newClient(t, a, downstream, &rawClient{era: era})
					echoes(t, c, large)
				}
			})
		}
	}
}

// 32 callers at once, each of which must get its own answers and no others.
func TestManyCallersLoseNothing(t *testing.T) {
	testenv.NeedSlow(t)
	const callers, calls = 32, 10
	for _, p := range pairs() {
		t.Run(p.String(), func(t *testing.T) {
			s := &rawServer{era: p.server, serve: func(q *rawRequest) string {
				var params struct {
					Meta struct{ ProgressToken json.RawMessage } `json:"_meta"`
				}
				if json.Unmarshal(q.Params, &params) == nil && params.Meta.ProgressToken != nil {
					q.say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + string(params.Meta.ProgressToken) + `,"progress":1}}`)
				}
				return echo(q)
			}}
			a := open(t, gateway.Server{Name: "raw", Target: s.target(t, p.upstream)})
			var mu sync.Mutex
			progress := map[string]int{}
			c := newClient(t, a, p.downstream, &rawClient{era: p.client, other: func(text []byte) string {
				var m struct {
					Params struct{ ProgressToken string }
				}
				if json.Unmarshal(text, &m) == nil {
					mu.Lock()
					progress[m.Params.ProgressToken]++
					mu.Unlock()
				}
				return ""
			}})
			var running sync.WaitGroup
			for i := range callers {
				running.Go(func() {
					for j := range calls {
						arguments := fmt.Sprintf(`{"caller":%d,"call":%d}`, i, j)
						answer := c.begin("tools/call", c.params(`"name":"echo","arguments":`+arguments, fmt.Sprintf(`"progressToken":"%d-%d"`, i, j)))
						select {
						case m := <-answer:
							if !strings.Contains(string(m.Result), arguments) {
								t.Errorf("%s was answered by %s %s", arguments, m.Result, m.Error)
							}
						case <-time.After(patience):
							t.Errorf("%s was not answered", arguments)
							return
						}
					}
				})
			}
			running.Wait()
			if len(progress) != callers*calls {
				t.Errorf("progress came of %d calls, want %d", len(progress), callers*calls)
			}
			for token, n := range progress {
				if n != 1 {
					t.Errorf("progress of %s came %d times", token, n)
				}
			}
		})
	}
}

func TestTwoClientsOfOneServer(t *testing.T) {
	s := &mortal{rawServer: &rawServer{era: mcp.Legacy, serve: echo}}
	g, err := gateway.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	server := gateway.Server{Name: "raw", Target: s.target(), Protocol: mcp.Legacy}
	var accesses []*gateway.Access
	var clients []*rawClient
	for range 2 {
		a, err := g.Open(gateway.AccessOptions{Servers: []gateway.Server{server}})
		if err != nil {
			t.Fatal(err)
		}
		accesses = append(accesses, a)
		for range 2 {
			clients = append(clients, newClient(t, a, "http", &rawClient{era: mcp.Legacy}))
		}
	}
	for i, c := range clients {
		echoes(t, c, fmt.Sprintf(`{"client":%d}`, i))
	}
	if s.starts != len(clients) {
		t.Errorf("the server was started %d times for %d sessions", s.starts, len(clients))
	}
	if err := accesses[0].Close(); err != nil {
		t.Fatal(err)
	}
	echoes(t, clients[2], `{"still":"there"}`)
}
