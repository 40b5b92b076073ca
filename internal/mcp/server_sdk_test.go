package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/evalrun/evalrun/internal/testenv"
)

// The Go SDK as a client, of both eras and over both transports.
func TestSDKClient(t *testing.T) {
	for _, version := range []string{Version2025_06_18, Version2025_11_25, Version2026_07_28} {
		t.Run(version, func(t *testing.T) {
			t.Run("HTTP", func(t *testing.T) {
				h := newTestServer()
				e := serveHTTP(t, h, ServerOptions{StreamAfter: 10 * time.Millisecond})
				trySDKClient(t, h, version, &sdk.StreamableClientTransport{Endpoint: e.url, HTTPClient: e.client})
			})
			t.Run("stdio", func(t *testing.T) {
				noGoroutinesLeft(t)
				h := newTestServer()
				in, clientOut := io.Pipe()
				clientIn, out := io.Pipe()
				done := make(chan error, 1)
				go func() {
					done <- ServeStdio(context.Background(), in, out, h, ServerOptions{})
					_ = out.Close()
				}()
				trySDKClient(t, h, version, &sdk.IOTransport{Reader: clientIn, Writer: clientOut})
				if err := testenv.Receive(t, done); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func trySDKClient(t *testing.T, h *testServer, version string, transport sdk.Transport) {
	t.Helper()
	var mu sync.Mutex
	var progress []float64
	changed := make(chan struct{}, 10)
	client := sdk.NewClient(&sdk.Implementation{Name: "c", Version: "1"}, &sdk.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *sdk.ProgressNotificationClientRequest) {
			mu.Lock()
			defer mu.Unlock()
			progress = append(progress, r.Params.Progress)
			if len(progress) == 100 {
				changed <- struct{}{}
			}
		},
		ToolListChangedHandler: func(context.Context, *sdk.ToolListChangedRequest) { changed <- struct{}{} },
		ElicitationHandler: func(context.Context, *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
			return &sdk.ElicitResult{Action: "decline"}, nil
		},
	})
	session, err := client.Connect(t.Context(), transport, &sdk.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	if got := session.InitializeResult().ProtocolVersion; got != version {
		t.Errorf("version %s", got)
	}
	tools, err := session.ListTools(t.Context(), nil)
	if err != nil || len(tools.Tools) != 1 {
		t.Fatal(tools, err)
	}
	for _, tool := range []string{"echo", "wait"} {
		if tool == "wait" {
			go func() {
				<-h.started
				h.proceed <- struct{}{}
			}()
		}
		if _, err = session.CallTool(t.Context(), &sdk.CallToolParams{Name: tool, Arguments: map[string]any{"region": "x"}}); err != nil {
			t.Error(tool, err)
		}
	}
	var all sync.WaitGroup
	for i := range 32 {
		all.Go(func() {
			if _, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: "echo", Arguments: map[string]any{"n": i}}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	params := &sdk.CallToolParams{Name: "progress"}
	params.SetProgressToken("p")
	if _, err = session.CallTool(t.Context(), params); err != nil {
		t.Error(err)
	}
	testenv.Receive(t, changed)
	mu.Lock()
	if !slices.IsSorted(progress) {
		t.Errorf("progress: %v", progress)
	}
	mu.Unlock()
	if _, err = session.CallTool(t.Context(), &sdk.CallToolParams{Name: "no such tool"}); err == nil {
		t.Error("no error")
	}
	if version != Version2026_07_28 {
		result, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: "ask"})
		if err != nil || fmt.Sprint(result.StructuredContent) != "map[action:decline]" {
			t.Error(result, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var asked *Request
	all.Go(func() {
		asked = testenv.Receive(t, h.started)
		cancel()
	})
	if _, err = session.CallTool(ctx, &sdk.CallToolParams{Name: "wait"}); err == nil {
		t.Error("no error")
	}
	all.Wait()
	if cause := testenv.Receive(t, h.causes); !errors.Is(cause, ErrCancelled) {
		t.Errorf("cause: %v", cause)
	}
	if version != Version2026_07_28 {
		if err := asked.Session.Notify("notifications/tools/list_changed", json.RawMessage("{}")); err != nil {
			t.Error(err)
		}
		testenv.Receive(t, changed)
	}
	if err := session.Close(); err != nil {
		t.Error(err)
	}
	if version != Version2026_07_28 {
		testenv.Receive(t, h.closed)
	}
}

// The Go SDK goes on when its connection is cut in the middle of a call.
func TestSDKClientResumes(t *testing.T) {
	h := newTestServer()
	e := serveHTTP(t, h, ServerOptions{})
	heard := make(chan struct{}, 10)
	client := sdk.NewClient(&sdk.Implementation{Name: "c", Version: "1"}, &sdk.ClientOptions{
		LoggingMessageHandler: func(context.Context, *sdk.LoggingMessageRequest) { heard <- struct{}{} },
	})
	session, err := client.Connect(t.Context(),
		&sdk.StreamableClientTransport{Endpoint: e.url, HTTPClient: e.client}, &sdk.ClientSessionOptions{ProtocolVersion: Version2025_11_25})
	if err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	go func() {
		_, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: "note-and-wait"})
		answered <- err
	}()
	testenv.Receive(t, heard)
	e.server.CloseClientConnections()
	h.proceed <- struct{}{}
	if err := testenv.Receive(t, answered); err != nil {
		t.Error(err)
	}
	testenv.Receive(t, heard)
	if err := session.Close(); err != nil {
		t.Error(err)
	}
}
