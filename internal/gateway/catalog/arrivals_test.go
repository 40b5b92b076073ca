package catalog

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/gateway/gatewaytest"
	"github.com/evalrun/evalrun/internal/mcp"
)

// slowly puts a server behind one that answers nothing before it is told to.
func slowly(t *testing.T, s gateway.Server) (slow gateway.Server, come func()) {
	t.Helper()
	target, err := url.Parse(s.Target.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, FlushInterval: -1}
	there := make(chan struct{})
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-there:
			proxy.ServeHTTP(w, r)
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(func() { h.CloseClientConnections(); h.Close() })
	s.Target.URL = h.URL
	return s, func() { close(there) }
}

// muting are tasks that keep a subscription that has been acknowledged from going on for a while.
type muting struct {
	gateway.Tasks
	until <-chan struct{}
}

func (m muting) Mute(ctx context.Context, r *mcp.Request) {
	select {
	case <-m.until:
	case <-ctx.Done():
	}
	m.Tasks.Mute(ctx, r)
}

// A server that takes long to connect is left out, and announced when it comes.
func TestAggregateAnnouncesSlowServers(t *testing.T) {
	for _, era := range []mcp.Era{mcp.Legacy, mcp.Modern} {
		t.Run(string(era), func(t *testing.T) {
			t.Parallel()
			_, quick := startCatalog(t, "quick", "tool")
			_, other := startCatalog(t, "slow", "tool")
			slow, come := slowly(t, other)
			g := aggregated(t, slow, quick)
			g.aggregate.connecting = 50 * time.Millisecond
			notes := make(chan string, 100)
			notified := func(method string, _ json.RawMessage) { notes <- method }
			client, err := mcp.Connect(t.Context(), mcp.Target{URL: g.access.URLWithToken("all")}, mcp.ClientOptions{Protocol: era, Notified: notified})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = client.Detach() }()
			if !strings.Contains(string(client.InitializeResult()), `"tools":{"listChanged":true}`) {
				t.Errorf("%s", client.InitializeResult())
			}
			tools := func() string {
				ctx, cancel := context.WithTimeout(t.Context(), gatewaytest.TaskLimit)
				defer cancel()
				list, err := client.Call(ctx, mcp.Call{Method: mcp.MethodToolsList})
				if err != nil {
					t.Fatal(err)
				}
				return string(list)
			}
			if era == mcp.Modern {
				listen(t, client, `{"toolsListChanged":true}`, notes)
			}
			if list := tools(); !strings.Contains(list, "quick_tool") || strings.Contains(list, "slow_tool") {
				t.Error(list)
			}
			come()
			for gatewaytest.WaitFor(t, notes) != noteToolsChanged {
			}
			if list := tools(); !strings.Contains(list, "quick_tool") || !strings.Contains(list, "slow_tool") {
				t.Error(list)
			}
		})
	}
	t.Run("one that comes as soon as the client listens", func(t *testing.T) {
		t.Parallel()
		_, quick := startCatalog(t, "quick", "tool")
		_, other := startCatalog(t, "slow", "tool")
		slow, come := slowly(t, other)
		g := aggregated(t, slow, quick)
		g.aggregate.connecting = 50 * time.Millisecond
		there := make(chan struct{})
		g.aggregate.tasks = muting{g.aggregate.tasks, there}
		c := g.client(mcp.Modern)
		notes := make(chan string, 100)
		listen(t, c.Client, `{"toolsListChanged":true}`, notes)
		if list := string(c.Must(mcp.MethodToolsList, "{}").JSON()); strings.Contains(list, "slow_tool") {
			t.Error(list)
		}
		come()
		gatewaytest.Eventually(t, "the server does not come", func() bool {
			return strings.Contains(string(c.Must(mcp.MethodToolsList, "{}").JSON()), "slow_tool")
		})
		close(there)
		if got := gatewaytest.WaitFor(t, notes); got != noteToolsChanged {
			t.Error(got)
		}
	})
	t.Run("one that is alone is waited for", func(t *testing.T) {
		t.Parallel()
		_, other := startCatalog(t, "slow", "tool")
		slow, come := slowly(t, other)
		g := aggregated(t, slow)
		g.aggregate.connecting = time.Millisecond
		connecting := time.AfterFunc(100*time.Millisecond, come) // with nothing to tell that the gateway waits
		defer connecting.Stop()
		c := g.client(mcp.Legacy)
		if list := string(c.Must(mcp.MethodToolsList, "{}").JSON()); !strings.Contains(list, "slow_tool") {
			t.Error(list)
		}
	})
}

// A session that one server has no room for is none of the others'.
func TestAggregateHasNoRoomForASession(t *testing.T) {
	t.Parallel()
	_, one := startCatalog(t, "one", "tool")
	_, two := startCatalog(t, "two", "tool")
	two.MaxSessions = 1
	g := aggregated(t, one, two)
	g.client(mcp.Legacy)
	for range 5 { // in any order of the servers
		_, err := mcp.Connect(t.Context(), mcp.Target{URL: g.access.URLWithToken("all")}, mcp.ClientOptions{Protocol: mcp.Legacy})
		if err == nil || !strings.Contains(err.Error(), `"two" has 1 sessions`) {
			t.Error(err)
		}
	}
	if open := g.access.Sessions(); open["one"] != 1 || open["two"] != 1 {
		t.Error(open)
	}
}
