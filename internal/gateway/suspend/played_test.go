package suspend

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/mock"
)

// TestPlayedCalls calls tools of a modern server that are played, with clients of both eras: the
// server hears of none, and the results are those of each era.
func TestPlayedCalls(t *testing.T) {
	n, err := input.Parse("mocks.yaml", []byte(`[{match: {tool: greet, arguments: {to: a}}, result: hello}, {match: {tool: greet}, error: {code: -32001, message: gone}}, {match: {tool: again}, real: true}]`))
	if err != nil {
		t.Fatal(err)
	}
	s, server := startAsking(t)
	a := behind(t, server, &memory{}, func(c *Hooks) {
		c.Mocks = mock.NewPlayer(mock.Parse(&input.Reader{}, n, "mocks"), nil)
	})
	header := http.Header{}
	header.Set("Authorization", "Bearer "+a.access.Token())
	modern, err := mcp.Connect(t.Context(), mcp.Target{URL: a.access.URL("s"), Header: header}, mcp.ClientOptions{Protocol: mcp.Modern})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = modern.Close() })
	call := func(c *mcp.Client, params string) string {
		result, err := c.Call(t.Context(), mcp.Call{Method: mcp.MethodToolsCall, Params: json.RawMessage(params)})
		if err != nil {
			return err.Error()
		}
		return string(result)
	}
	for client, want := range map[*mcp.Client]string{
		a.client: `{"content":[{"type":"text","text":"hello"}]}`,
		modern:   `{"content":[{"type":"text","text":"hello"}],"resultType":"complete"}`,
	} {
		if got := call(client, `{"name":"greet","arguments":{"to":"a"}}`); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if got := call(client, `{"name":"greet"}`); !strings.HasSuffix(got, "-32001: gone") {
			t.Error(got)
		}
	}
	if n := s.made(); n != 0 {
		t.Fatalf("the server was called %d times", n)
	}
	if call(modern, `{"name":"again"}`); s.made() != 1 {
		t.Error("a call that is to be made was not")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	places := map[string]int{}
	for _, r := range a.records {
		places[r.Mock]++
	}
	if places["mocks[0]"] != 2 || places["mocks[1]"] != 2 || places[""] != 1 {
		t.Errorf("recorded as %v", places)
	}
}
