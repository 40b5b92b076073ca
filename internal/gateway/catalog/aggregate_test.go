package catalog

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/gateway/gatewaytest"
	"github.com/evalrun/evalrun/internal/gateway/tasks"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	taskserver "github.com/evalrun/evalrun/fixtures/mcp/tasks/server"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/testenv"
)

const noteToolsChanged = "notifications/tools/list_changed"

func TestAggregate(t *testing.T) {
	testenv.NeedSlow(t)
	long := strings.Repeat("long", 20)
	one, first := startCatalog(t, "a", "b_c", "Read File", long)
	_, second := startCatalog(t, "a_b", "c", "other")
	_, fixture := gatewaytest.StartTaskFixture(t, taskserver.Options{Era: taskserver.Legacy})
	down := gateway.Server{Name: "down", Target: mcp.Target{URL: "http://127.0.0.1:1"}}
	g := aggregated(t, first, second, fixture, down)
	if got := g.access.Names(); !slices.Equal(got, []string{"a", "a_b", "tasks", "down", "all"}) {
		t.Error(got)
	}

	for _, version := range []string{mcp.Version2025_11_25, mcp.Version2026_07_28} {
		t.Run(version, func(t *testing.T) {
			changed := make(chan struct{}, 10)
			client := sdk.NewClient(&sdk.Implementation{Name: "c", Version: "1"}, &sdk.ClientOptions{ToolListChangedHandler: func(context.Context, *sdk.ToolListChangedRequest) { changed <- struct{}{} }})
			c, err := client.Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: g.access.URLWithToken("all")}, &sdk.ClientSessionOptions{ProtocolVersion: version})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if got := c.InitializeResult(); !strings.Contains(got.Instructions, "a: I am a\n") || got.Capabilities.Prompts == nil || got.Capabilities.Resources == nil {
				t.Errorf("%+v", got)
			}

			tools, err := c.ListTools(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			of := map[string]string{} // names by what is called
			for _, tool := range tools.Tools {
				if len(tool.Name) > 64 || strings.Trim(tool.Name, "abcdefghijklmnopqrstuvwxyz0123456789_-") != "" {
					t.Errorf("%q", tool.Name)
				}
				if strings.HasPrefix(tool.Name, "a_") {
					r, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: strings.ToUpper(tool.Name)})
					of[gatewaytest.SdkText(t, r, err)] = tool.Name
				}
			}
			want := map[string]string{
				"a b_c": digested("a_b_c", "a", "b_c"), "a_b c": digested("a_b_c", "a_b", "c"), "a_b other": digested("a_b_other", "a_b", "other"),
				"a Read File": "a_read_file", "a " + long: digested("a_"+long, "a", long),
			}
			if fmt.Sprint(of) != fmt.Sprint(want) {
				t.Errorf("got  %v\nwant %v", of, want)
			}
			if _, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: "a_nothing"}); err == nil || !strings.Contains(err.Error(), "Unknown tool") {
				t.Error(err)
			}
			r, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: "tasks_required_compute", Arguments: map[string]any{"ms": 50, "text": "a task"}})
			if got := gatewaytest.SdkText(t, r, err); got != "a task" {
				t.Error(got)
			}

			prompts, err := c.ListPrompts(t.Context(), nil)
			if err != nil || len(prompts.Prompts) != 2 {
				t.Fatal(prompts, err)
			}
			if p, err := c.GetPrompt(t.Context(), &sdk.GetPromptParams{Name: digested("a_b_greet", "a_b", "greet")}); err != nil || p.Description != "of a_b" {
				t.Error(p, err)
			}
			for _, name := range []string{"a_b", "a"} {
				if r, err := c.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "test://" + name}); err != nil || r.Contents[0].Text != "of "+name {
					t.Error(r, err)
				}
			}
			if version == mcp.Version2025_11_25 {
				addTool(one, "a", "new")
				gatewaytest.WaitFor(t, changed)
				one.RemoveTools("new")
			}
		})
	}

	t.Run("tasks and sessions", func(t *testing.T) {
		for _, era := range []mcp.Era{mcp.Legacy, mcp.Modern} {
			c := g.client(era)
			id := c.Task("TASKS_compute", `{"ms":1000,"text":"x"}`)
			g.restart()
			if text, _, err := c.Result(id); text != "x" || err != nil {
				t.Error(text, err)
			}
			if text, _, err := c.Result(c.Task("tasks_compute", `{"ms":10,"text":"y"}`)); text != "y" || err != nil {
				t.Error(text, err)
			}
		}
	})

	t.Run("the name is taken", func(t *testing.T) {
		other, err := tasks.New(tasks.Options{Store: g.store}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if a, err := g.gateway.Open(gateway.AccessOptions{Servers: []gateway.Server{first}, Tasks: other, Combine: Combine("a")}); err == nil {
			t.Error(a.Close())
		}
	})
}

// A name is that of one tool of one server, whichever servers can be reached.
func TestAggregateNamesAreOfOneServer(t *testing.T) {
	stranger := digested("github_enterprise_search", "github_enterprise", "search")
	_, first := startCatalog(t, "github", "search", "enterprise_search", strings.TrimPrefix(stranger, "github_"))
	_, second := startCatalog(t, "github_enterprise", "search")
	want := map[string]string{
		"github_search": "github search", digested("github_enterprise_search", "github", "enterprise_search"): "github enterprise_search",
		digested(stranger, "github", strings.TrimPrefix(stranger, "github_")): "github " + strings.TrimPrefix(stranger, "github_"),
		stranger: "github_enterprise search",
	}
	down := "http://127.0.0.1:1/"
	up := []string{first.Target.URL, second.Target.URL}
	for name, urls := range map[string][]string{"both": up, "the first": {up[0], down}, "the second": {down, up[1]}} {
		t.Run(name+" can be reached", func(t *testing.T) {
			first.Target.URL, second.Target.URL = urls[0], urls[1]
			c := aggregated(t, first, second).client(mcp.Modern)
			for name, text := range want {
				reached := slices.Equal(urls, up) || (urls[0] == up[0]) == strings.HasPrefix(text, "github ")
				o, err := c.Try(mcp.MethodToolsCall, fmt.Sprintf(`{"name":%q,"arguments":{}}`, name))
				if reached != (err == nil) || reached && !strings.Contains(string(o.Get("content")), text) {
					t.Errorf("%s: %s, %v", name, o.JSON(), err)
				}
			}
			c.Refused(mcp.CodeInvalidParams, mcp.MethodToolsCall, `{"name":"github_enterprise_search","arguments":{}}`)
		})
	}
}

// hung is a server that says hello, if that, and nothing more.
type hung struct{ mute bool }

func (h hung) Serve(ctx context.Context, r *mcp.Request) (json.RawMessage, error) {
	if r.Method == mcp.MethodInitialize && !h.mute {
		return json.RawMessage(`{"protocolVersion":"2025-11-25","serverInfo":{"name":"hung","version":"1"},"capabilities":{"tools":{},"logging":{}}}`), nil
	}
	<-ctx.Done()
	return nil, ctx.Err()
}
func (hung) Notified(*mcp.Session, string, json.RawMessage) {}
func (hung) Closed(*mcp.Session)                            {}

// A server that does not answer is not in the way of the others.
func TestAggregateDoesNotWaitForOneServer(t *testing.T) {
	testenv.NeedSlow(t)
	for name, h := range map[string]hung{"has said hello": {}, "has not said hello": {mute: true}} {
		t.Run("one that "+name, func(t *testing.T) {
			x := mcp.NewHTTPHandler(h, mcp.ServerOptions{})
			s := httptest.NewServer(x)
			t.Cleanup(func() { x.Close(); s.Close() })
			_, first := startCatalog(t, "ok", "tool")
			g := aggregated(t, first, gateway.Server{Name: "hung", Protocol: mcp.Legacy, Target: mcp.Target{URL: s.URL}})
			if h.mute {
				g.aggregate.connecting = 100 * time.Millisecond
			} else {
				g.aggregate.patience = time.Second
			}
			// The modern client goes on with what it knows: the gateway has not connected to any
			// server when it is asked for the first list.
			o := mcp.ClientOptions{Session: &mcp.SessionState{Era: mcp.Modern, Version: mcp.Version2026_07_28}}
			if !h.mute {
				o = mcp.ClientOptions{Protocol: mcp.Legacy}
			}
			c := g.clientWith("all", o)
			if !h.mute {
				c.Must(mcp.MethodSetLevel, `{"level":"info"}`)
			}
			start := time.Now()
			var all sync.WaitGroup
			for range 20 {
				all.Go(func() {
					if o, err := c.Try(mcp.MethodToolsList, "{}"); err != nil || !strings.Contains(string(o.Get("tools")), `"ok_tool"`) {
						t.Error(string(o.JSON()), err)
					}
				})
			}
			all.Wait()
			c.Must(mcp.MethodToolsCall, `{"name":"ok_tool","arguments":{}}`)
			if took := time.Since(start); took > gatewaytest.TaskLimit/2 {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// cutting is a modern server whose subscriptions end when the test says so.
type cutting struct{ began, cut chan struct{} }

func (s cutting) Serve(ctx context.Context, r *mcp.Request) (json.RawMessage, error) {
	switch r.Method {
	case mcp.MethodDiscover:
		return json.RawMessage(`{"resultType":"complete","ttlMs":0,"cacheScope":"private","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true}}}`), nil
	case mcp.MethodListen:
		if err := r.Notify(mcp.NoteAcknowledged, json.RawMessage(`{"notifications":{"toolsListChanged":true}}`)); err != nil {
			return nil, err
		}
		s.began <- struct{}{}
		select {
		case <-s.cut:
		case <-ctx.Done():
		}
	}
	return json.RawMessage(`{"resultType":"complete"}`), nil
}
func (cutting) Notified(*mcp.Session, string, json.RawMessage) {}
func (cutting) Closed(*mcp.Session)                            {}

// A subscription that a server has cut is begun again there, and so is one at a server that could
// not be reached before. The client is told that it may have missed something.
func TestAggregateListensAgain(t *testing.T) {
	testenv.NeedSlow(t)
	s := cutting{make(chan struct{}, 10), make(chan struct{})}
	x := mcp.NewHTTPHandler(s, mcp.ServerOptions{})
	var up atomic.Bool
	refused := make(chan string, 100)
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !up.Load() {
			w.WriteHeader(http.StatusBadGateway)
			refused <- r.Method
			return
		}
		x.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { x.Close(); h.Close() })
	_, other := startCatalog(t, "other", "tool")
	g := aggregated(t, gateway.Server{Name: "cutting", Protocol: mcp.Modern, Target: mcp.Target{URL: h.URL}}, other)
	c := g.client(mcp.Modern)
	for len(refused) > 0 {
		<-refused
	}
	notes := make(chan string, 100)
	listen(t, c.Client, `{"toolsListChanged":true,"promptsListChanged":true}`, notes)
	gatewaytest.WaitFor(t, refused)
	up.Store(true)
	for range 2 {
		gatewaytest.WaitFor(t, s.began)
		if got := gatewaytest.WaitFor(t, notes); got != noteToolsChanged {
			t.Error(got)
		}
		s.cut <- struct{}{}
	}
}

func TestAggregateTellsModernClientsOfChanges(t *testing.T) {
	one, first := startCatalog(t, "one", "tool")
	_, second := startCatalog(t, "two", "tool")
	g := aggregated(t, first, second)
	c := g.client(mcp.Modern)
	notes := make(chan string, 100)
	listen(t, c.Client, `{"toolsListChanged":true}`, notes)
	// That the servers have the subscription, too, nobody tells us. The SDK tells a change when
	// there has been none for 10 ms, and so never if there is always another.
	var changed time.Time
	gatewaytest.Eventually(t, "the change was not told", func() bool {
		if time.Since(changed) > 100*time.Millisecond {
			changed = time.Now()
			addTool(one, "one", "new")
			one.RemoveTools("new")
		}
		return len(notes) > 0
	})
	for len(notes) > 0 {
		if got := <-notes; got != noteToolsChanged {
			t.Error(got)
		}
	}
}
