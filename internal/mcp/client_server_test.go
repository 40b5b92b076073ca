package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
)

// clientOwnServer is a handler of this package's own server.
type clientOwnServer struct{}

func (clientOwnServer) Serve(ctx context.Context, r *Request) (json.RawMessage, error) {
	switch r.Method {
	case MethodInitialize:
		return json.RawMessage(initializeAnswer), nil
	case MethodDiscover:
		return json.RawMessage(`{"supportedVersions":["2026-07-28","2025-11-25"],"capabilities":{},"resultType":"complete"}`), nil
	case "ask":
		return r.Ask(ctx, "roots/list", nil)
	case MethodToolsCall:
		for i := range 100 {
			if err := r.Notify("notifications/n", json.RawMessage(fmt.Sprint(`{"n":`, i, `}`))); err != nil {
				return nil, err
			}
		}
		return json.RawMessage(`{"n":9007199254740993}`), nil
	}
	return nil, Errorf(CodeMethodNotFound, "no %s", r.Method).WithData(json.RawMessage(`{"n":9007199254740993}`))
}

func (clientOwnServer) Notified(*Session, string, json.RawMessage) {}
func (clientOwnServer) Closed(*Session)                            {}

func TestClientWithOwnServer(t *testing.T) {
	h := NewHTTPHandler(clientOwnServer{}, ServerOptions{})
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	t.Cleanup(s.CloseClientConnections)
	for _, protocol := range []Era{"", Legacy} {
		t.Run("protocol "+string(protocol), func(t *testing.T) {
			c := clientDial(t, Target{URL: s.URL}, ClientOptions{Protocol: protocol})
			if want := protocol == ""; (c.Era() == Modern) != want {
				t.Errorf("the era is %s", c.Era())
			}
			n := 0
			call := clientCallTool("t", "{}")
			call.Notified = func(_ string, params json.RawMessage) {
				if clientMember(params, "n") == fmt.Sprint(n) {
					n++
				}
			}
			if result, err := c.Call(clientSoon(t), call); err != nil || !strings.Contains(string(result), "9007199254740993") || n != 100 {
				t.Errorf("the result is %s after %d of 100, %v", result, n, err)
			}
			_, err := c.Call(clientSoon(t), Call{Method: "other"})
			var e *Error
			if !errors.As(err, &e) || e.Code != CodeMethodNotFound || string(e.Data()) != `{"n":9007199254740993}` {
				t.Errorf("the error is %v", err)
			}
			if protocol == "" {
				return
			}
			result, err := c.Call(clientSoon(t), Call{Method: "ask", Asked: func(context.Context, string, json.RawMessage) (json.RawMessage, *Error) {
				return json.RawMessage(`{"roots":[]}`), nil
			}})
			if err != nil || clientMember(result, "roots") != "[]" {
				t.Errorf("the answer that was asked for is %s, %v", result, err)
			}
			state := c.State()
			if err := c.Detach(); err != nil {
				t.Error(err)
			}
			second := clientDial(t, Target{URL: s.URL}, ClientOptions{Session: &state})
			if _, err := second.Call(clientSoon(t), clientCallTool("t", "{}")); err != nil {
				t.Error(err)
			}
			if err := second.Close(); err != nil {
				t.Error(err)
			}
			third := clientDial(t, Target{URL: s.URL}, ClientOptions{Session: &state})
			if _, err := third.Call(clientSoon(t), clientCallTool("t", "{}")); !errors.Is(err, ErrSessionLost) {
				t.Errorf("the error is %v", err)
			}
		})
	}
}
