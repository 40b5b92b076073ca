package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/evalrun/evalrun/internal/testenv"
)

// clientSDKServer is a foreign peer: a server of the public Go SDK. cancelled gets a value when the
// context of a call of "wait" ends; the call ends with the test's context, too: a session of the
// SDK that closes waits for the calls that nobody has cancelled.
func clientSDKServer(test context.Context, cancelled chan<- struct{}) *sdk.Server {
	s := sdk.NewServer(&sdk.Implementation{Name: "foreign", Version: "1"}, nil)
	schema := map[string]any{"type": "object", "properties": map[string]any{"region": map[string]any{"type": "string", "x-mcp-header": "Region"}}}
	s.AddTool(&sdk.Tool{Name: "echo", InputSchema: schema}, func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		if token := req.Params.GetProgressToken(); token != nil {
			for i := range 100 {
				if err := req.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ProgressToken: token, Progress: float64(i)}); err != nil {
					return nil, err
				}
			}
		}
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: string(req.Params.Arguments)}}}, nil
	})
	s.AddTool(&sdk.Tool{Name: "wait", InputSchema: schema}, func(ctx context.Context, _ *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		s.AddTool(&sdk.Tool{Name: "late", InputSchema: schema}, nil) // the clients are told
		select {
		case <-test.Done():
			return nil, test.Err()
		case <-ctx.Done():
		}
		if cancelled != nil {
			cancelled <- struct{}{}
		}
		return nil, ctx.Err()
	})
	return s
}

// TestClientHelperProcess is the process of a stdio server of the Go SDK; it is no test.
func TestClientHelperProcess(*testing.T) {
	if os.Getenv("EVALRUN_MCP_CLIENT_HELPER") == "" {
		return
	}
	if err := clientSDKServer(context.Background(), nil).Run(context.Background(), &sdk.StdioTransport{}); err != nil && !errors.Is(err, io.EOF) {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(0)
}

// clientProcess is a child process as a connection.
type clientProcess struct {
	io.Reader
	io.WriteCloser
	cmd *exec.Cmd
}

func (p *clientProcess) Close() error {
	p.WriteCloser.Close() // it has a moment to end by itself
	t := time.AfterFunc(2*time.Second, func() { _ = p.cmd.Process.Kill() })
	defer t.Stop()
	return p.cmd.Wait()
}

func clientCommand(env string, name string, args ...string) Target {
	return Target{Start: func(ctx context.Context) (io.ReadWriteCloser, error) {
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Env = append(os.Environ(), env)
		in, err := cmd.StdinPipe()
		if err != nil {
			return nil, err
		}
		// Not StdoutPipe, which cmd.Wait closes before all was read.
		out, theirs, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		cmd.Stdout = theirs
		err = cmd.Start()
		theirs.Close()
		if err != nil {
			out.Close()
			return nil, err
		}
		return &clientProcess{out, in, cmd}, nil
	}}
}

// clientSDKTargets are the foreign servers on every transport.
func clientSDKTargets(t *testing.T, cancelled chan<- struct{}) map[string]Target {
	handler := func(o *sdk.StreamableHTTPOptions) string {
		server := clientSDKServer(t.Context(), cancelled)
		s := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, o))
		t.Cleanup(s.Close)
		t.Cleanup(s.CloseClientConnections)
		return s.URL
	}
	server := clientSDKServer(t.Context(), cancelled)
	sse := httptest.NewServer(sdk.NewSSEHandler(func(*http.Request) *sdk.Server { return server }, nil))
	t.Cleanup(sse.Close)
	t.Cleanup(sse.CloseClientConnections)
	return map[string]Target{
		"stdio":     clientCommand("EVALRUN_MCP_CLIENT_HELPER=1", os.Args[0], "-test.run=^TestClientHelperProcess$"),
		"stateful":  {URL: handler(nil)},
		"json":      {URL: handler(&sdk.StreamableHTTPOptions{JSONResponse: true})},
		"stateless": {URL: handler(&sdk.StreamableHTTPOptions{Stateless: true, PropagateRequestCancellation: true})},
		"sse":       {URL: sse.URL, SSE: true},
	}
}

func TestClientWithServersOfTheSDK(t *testing.T) {
	cancelled := make(chan struct{}, 10)
	for name, target := range clientSDKTargets(t, cancelled) {
		for _, protocol := range []Era{"", Legacy} {
			t.Run(name+" "+string(protocol), func(t *testing.T) {
				notes := clientNotes{came: make(chan clientNote, 100)}
				c := clientDial(t, target, ClientOptions{Protocol: protocol, Notified: notes.add})
				if want := protocol == "" && (name == "stdio" || name == "stateless"); (c.Era() == Modern) != want {
					t.Errorf("the era is %s", c.Era())
				}
				tools, err := c.Call(clientSoon(t), Call{Method: MethodToolsList})
				if err != nil || !strings.Contains(string(tools), `"echo"`) {
					t.Fatalf("tools/list: %s, %v", tools, err)
				}
				progress := 0
				result, err := c.Call(clientSoon(t), Call{
					Method: MethodToolsCall,
					Params: json.RawMessage(`{"name":"echo","arguments":{"region":"ö","n":9007199254740993},"_meta":{"progressToken":1.50}}`),
					Notified: func(method string, params json.RawMessage) {
						if method == NoteProgress && clientMember(params, "progress") == strconv.Itoa(progress) && clientMember(params, "progressToken") == "1.50" {
							progress++
						}
					},
				})
				if err != nil || !strings.Contains(string(result), `{\"region\":\"ö\",\"n\":9007199254740993}`) {
					t.Errorf("the result is %s, %v", result, err)
				}
				if progress != 100 && name != "json" {
					t.Errorf("%d of 100 came in order", progress)
				}
				if _, err := c.Call(clientSoon(t), clientCallTool("missing", "{}")); err == nil || !strings.Contains(err.Error(), "missing") {
					t.Errorf("the error is %v", err)
				}
			})
		}
	}
}

func TestClientIsUsedByManyAtOnceOnEveryTransport(t *testing.T) {
	testenv.NeedSlow(t)
	for name, target := range clientSDKTargets(t, nil) {
		t.Run(name, func(t *testing.T) {
			c := clientDial(t, target, ClientOptions{})
			ctx := clientSoon(t)
			var callers sync.WaitGroup
			for i := range 32 {
				callers.Go(func() {
					for j := range 5 {
						mark := fmt.Sprintf("%d.%d", i, j)
						result, err := c.Call(ctx, clientCallTool("echo", `{"mark":"`+mark+`"}`))
						if err != nil || !strings.Contains(string(result), mark) {
							t.Errorf("%s got %s, %v", mark, result, err)
						}
					}
				})
			}
			callers.Wait()
		})
	}
}

func TestClientCancelsCallsOfServersOfTheSDK(t *testing.T) {
	cancelled := make(chan struct{}, 1)
	for name, target := range clientSDKTargets(t, cancelled) {
		if name == "stdio" {
			continue // its end is not seen from here
		}
		t.Run(name, func(t *testing.T) {
			changed := make(chan struct{}, 100)
			o := ClientOptions{Notified: func(method string, _ json.RawMessage) {
				if method == "notifications/tools/list_changed" {
					changed <- struct{}{}
				}
			}}
			c := clientDial(t, target, o)
			ctx, cancel := context.WithCancel(clientSoon(t))
			call := clientGo(ctx, c, clientCallTool("wait", "{}"))
			if c.Era() == Legacy {
				testenv.Receive(t, changed) // by the standalone stream, over HTTP: it is open, and the call is under way
			}
			cancel()
			if r := testenv.Receive(t, call); !errors.Is(r.err, context.Canceled) {
				t.Errorf("the error is %v", r.err)
			}
			if c.Era() == Legacy {
				testenv.Receive(t, cancelled)
			}
		})
	}
}

func TestClientLosesTheSessionWithItsServer(t *testing.T) {
	server := clientSDKServer(t.Context(), nil)
	var handler atomic.Pointer[sdk.StreamableHTTPHandler]
	closeSessions := func() {
		for session := range server.Sessions() {
			_ = session.Close()
		}
	}
	defer closeSessions()
	restart := func() {
		closeSessions()
		handler.Store(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, nil))
	}
	restart()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler.Load().ServeHTTP(w, r) }))
	defer s.Close()
	defer s.CloseClientConnections()
	first := clientDial(t, Target{URL: s.URL}, ClientOptions{})
	if err := first.Detach(); err != nil {
		t.Fatal(err)
	}
	state := first.State()
	second := clientDial(t, Target{URL: s.URL}, ClientOptions{Session: &state})
	if result, err := second.Call(clientSoon(t), clientCallTool("echo", "{}")); err != nil {
		t.Errorf("the session goes on with %s, %v", result, err)
	}
	restart()
	if _, err := second.Call(clientSoon(t), clientCallTool("echo", "{}")); !errors.Is(err, ErrSessionLost) {
		t.Errorf("the error is %v", err)
	}
}

func TestClientLeavesNothingBehind(t *testing.T) {
	ours := regexp.MustCompile(`/mcp\.(\(\*(Client|stdioLink|httpLink|sseLink)\)|openS)`)
	for name, target := range clientSDKTargets(t, nil) {
		c := clientDial(t, target, ClientOptions{})
		if _, err := c.Call(clientSoon(t), clientCallTool("echo", "{}")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		call := clientGo(ctx, c, clientCallTool("wait", "{}"))
		cancel()
		testenv.Receive(t, call)
		if err := c.Close(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		for _, one := range bytes.Split(stacks, []byte("\n\n")) {
			if ours.Match(one) {
				t.Errorf("%s leaves a goroutine:\n%s", name, one)
			}
		}
	}
}

// TestClientWithServerEverything meets the reference server on each of its transports.
func TestClientWithServerEverything(t *testing.T) {
	t.Parallel()
	node, script := testenv.Node(t), testenv.LabFile(t, "everything/node_modules/@modelcontextprotocol/server-everything/dist/index.js")
	serve := func(t *testing.T, transport, path string) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		_, port, _ := net.SplitHostPort(l.Addr().String())
		l.Close()
		cmd := exec.CommandContext(t.Context(), node, script, transport)
		cmd.Env = append(os.Environ(), "PORT="+port)
		stderr, err := cmd.StderrPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		var b [4096]byte
		for said := ""; !strings.Contains(said, port); { // that it listens
			n, err := stderr.Read(b[:])
			if err != nil {
				t.Fatalf("server-everything said %q: %v", said, err)
			}
			said += string(b[:n])
		}
		t.Cleanup(func() { stderr.Close() })
		go func() { _, _ = io.Copy(io.Discard, stderr) }() // until the process ends
		return "http://127.0.0.1:" + port + path
	}
	targets := map[string]func(t *testing.T) Target{
		"stdio":          func(*testing.T) Target { return clientCommand("A=b", node, script, "stdio") },
		"streamableHttp": func(t *testing.T) Target { return Target{URL: serve(t, "streamableHttp", "/mcp")} },
		"sse":            func(t *testing.T) Target { return Target{URL: serve(t, "sse", "/sse"), SSE: true} },
	}
	for name, start := range targets {
		t.Run(name, func(t *testing.T) {
			target := start(t)
			c := clientDial(t, target, ClientOptions{})
			if c.Era() != Legacy || c.Version() != Version2025_11_25 {
				t.Errorf("it speaks %s %s", c.Era(), c.Version())
			}
			progress := 0
			result, err := c.Call(clientSoon(t), Call{
				Method: MethodToolsCall,
				Params: json.RawMessage(`{"name":"trigger-long-running-operation","arguments":{"duration":0.5,"steps":5},"_meta":{"progressToken":"p"}}`),
				Notified: func(method string, params json.RawMessage) {
					if method == NoteProgress && clientMember(params, "progressToken") == `"p"` {
						progress++
					}
				},
			})
			if err != nil || !strings.Contains(string(result), "completed") || progress != 5 {
				t.Errorf("the result is %s after %d of 5, %v", result, progress, err)
			}
			task, err := c.Call(clientSoon(t), Call{Method: MethodToolsCall, Params: json.RawMessage(`{"name":"simulate-research-query","arguments":{"topic":"x"},"task":{}}`)})
			if err != nil || clientMember(task, "task", "taskId") == "" {
				t.Errorf("the task is %s, %v", task, err)
			}
			if name != "streamableHttp" {
				return
			}
			// Another client goes on with the session, which knows the task; after that the server
			// does not know the session.
			state := c.State()
			if err := c.Detach(); err != nil {
				t.Error(err)
			}
			second := clientDial(t, target, ClientOptions{Session: &state})
			get := Call{Method: MethodTasksGet, Params: json.RawMessage(`{"taskId":` + clientMember(task, "task", "taskId") + `}`)}
			if result, err := second.Call(clientSoon(t), get); err != nil {
				t.Errorf("the task is %s, %v", result, err)
			}
			if err := second.Close(); err != nil {
				t.Error(err)
			}
			third := clientDial(t, target, ClientOptions{Session: &state})
			if _, err := third.Call(clientSoon(t), get); !errors.Is(err, ErrSessionLost) {
				t.Errorf("the error is %v", err)
			}
		})
	}
}
