package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/testenv"
)

func TestClientFindsOutTheEraOverStdio(t *testing.T) {
	testenv.NeedSlow(t)
	modern := func(p *clientStdioPeer, m message) {
		p.answer(m.ID, `{"supportedVersions":["2026-07-28","2025-11-25"],"capabilities":{},"resultType":"complete"}`)
	}
	tests := []struct {
		name   string
		probed func(p *clientStdioPeer, m message) // on server/discover; then the process stays until the client goes
		exits  bool
		era    Era
		starts int64
	}{
		{"a modern server keeps its process", modern, false, Modern, 1},
		{"an error", func(p *clientStdioPeer, m message) {
			p.say(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"error":{"code":-32601,"message":"Method not found"}}`)
		}, false, Legacy, 2},
		{"an error without an id", func(p *clientStdioPeer, _ message) {
			p.say(`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"what?"}}`)
		}, false, Legacy, 2},
		{"only legacy versions", func(p *clientStdioPeer, m message) {
			p.answer(m.ID, `{"supportedVersions":["2025-11-25"]}`)
		}, false, Legacy, 2},
		{"a result that is none", func(p *clientStdioPeer, m message) { p.answer(m.ID, `"yes"`) }, false, Legacy, 2},
		{"silence", func(*clientStdioPeer, message) {}, false, Legacy, 2},
		{"exit", func(*clientStdioPeer, message) {}, true, Legacy, 2},
		{"noise and a notification", func(p *clientStdioPeer, _ message) {
			p.say("panic: not initialized\n{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{}}")
		}, true, Legacy, 2},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var starts atomic.Int64
			target := clientPlay(t, func(p *clientStdioPeer) {
				if starts.Add(1) > 1 {
					clientGreet(p)
				} else if m, ok := p.next(); ok && m.Method == MethodDiscover {
					test.probed(p, m)
					if test.exits {
						return
					}
				}
				_, _ = io.Copy(io.Discard, p) // until the client goes
			})
			var notes clientNotes
			c := clientDial(t, target, ClientOptions{ProbeTimeout: 2 * time.Second, Notified: notes.add})
			if c.Era() != test.era || starts.Load() != test.starts || len(notes.list()) != 0 {
				t.Errorf("the era is %s after %d starts, with notifications %v; want %s after %d", c.Era(), starts.Load(), notes.list(), test.era, test.starts)
			}
			if test.era == Legacy && (c.Version() != "2025-11-25" || string(c.InitializeResult()) != initializeAnswer) {
				t.Errorf("version %s, hello %s", c.Version(), c.InitializeResult())
			}
		})
	}
}

// G25: a modern server that starts more slowly than the probe waits is asked again.
func TestClientAsksASlowServerAgain(t *testing.T) {
	const slow = 300 * time.Millisecond
	for name, legacy := range map[string]bool{"of both eras": true, "modern only": false} {
		t.Run(name, func(t *testing.T) {
			target := clientPlay(t, func(p *clientStdioPeer) {
				time.Sleep(slow) // its start
				m, ok := p.next()
				switch {
				case !ok:
				case m.Method == MethodDiscover:
					p.answer(m.ID, `{"supportedVersions":["2026-07-28"],"capabilities":{},"resultType":"complete"}`)
				case legacy:
					p.answer(m.ID, initializeAnswer)
				default:
					p.say(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"error":{"code":-32601,"message":"Method not found"}}`)
				}
				_, _ = io.Copy(io.Discard, p)
			})
			if c := clientDial(t, target, ClientOptions{ProbeTimeout: slow / 3}); c.Era() != Modern {
				t.Errorf("it is served as %s", c.Era())
			}
		})
	}
}

func TestClientDoesNotProbeWhereTheEraIsGiven(t *testing.T) {
	target := clientPlay(t, func(p *clientStdioPeer) {
		if !clientGreet(p) {
			t.Error("the client did not begin with initialize")
		}
		_, _ = io.Copy(io.Discard, p)
	})
	clientDial(t, target, ClientOptions{Protocol: Legacy})
}

func TestClientTellsWhyItCannotConnect(t *testing.T) {
	cause := errors.New("no such file")
	var status *Error
	tests := []struct {
		name   string
		target Target
		o      ClientOptions
		is     error
		as     any
		text   string
	}{
		{"nothing", Target{}, ClientOptions{}, nil, nil, "either a command or a URL"},
		{"an unknown version", Target{URL: "http://127.0.0.1:1"}, ClientOptions{Version: "2026-07-28"}, nil, nil, "unknown legacy MCP version"},
		{"a session over stdio", clientPlay(t, nil), ClientOptions{Session: &SessionState{Era: Legacy, Version: "2025-11-25"}}, nil, nil, "none to go on with"},
		{"no process", Target{Start: func(context.Context) (io.ReadWriteCloser, error) { return nil, cause }}, ClientOptions{}, cause, nil, "start the MCP server"},
		{"exit", clientPlay(t, func(*clientStdioPeer) {}), ClientOptions{}, ErrClosed, nil, "initialize"},
		{"silence", clientPlay(t, func(p *clientStdioPeer) { _, _ = io.Copy(io.Discard, p) }),
			ClientOptions{Protocol: Legacy, HandshakeTimeout: 20 * time.Millisecond}, context.DeadlineExceeded, nil, "did not answer within 20ms"},
		{"a foreign version", clientPlay(t, func(p *clientStdioPeer) {
			if m, ok := p.next(); ok {
				p.answer(m.ID, `{"protocolVersion":"1999-01-01"}`)
			}
			_, _ = io.Copy(io.Discard, p)
		}), ClientOptions{Protocol: Legacy}, nil, nil, `"1999-01-01"`},
		{"a refusal", clientPlay(t, func(p *clientStdioPeer) {
			if m, ok := p.next(); ok {
				p.say(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"error":{"code":7,"message":"not you"}}`)
			}
			_, _ = io.Copy(io.Discard, p)
		}), ClientOptions{Protocol: Modern}, nil, &status, "not you"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c, err := Connect(clientSoon(t), test.target, test.o)
			if err == nil {
				c.Close()
				t.Fatal("it connected")
			}
			if !strings.Contains(err.Error(), test.text) || test.is != nil && !errors.Is(err, test.is) || test.as != nil && !errors.As(err, test.as) {
				t.Errorf("the error is %v", err)
			}
		})
	}
}

func TestClientDescribesItselfToAModernServer(t *testing.T) {
	got := make(chan message, 1)
	var subscription json.RawMessage
	c := clientDial(t, clientPlay(t, func(p *clientStdioPeer) {
		for {
			m, ok := p.next()
			if !ok {
				return
			}
			switch m.Method {
			case MethodDiscover:
				p.answer(m.ID, `{"supportedVersions":["2026-07-28"],"_meta":{"uipath.com/job":{"version":1}}}`)
			case MethodListen:
				subscription = m.ID
				tag := `{"_meta":{"io.modelcontextprotocol/subscriptionId":` + string(m.ID) + `}}`
				p.say(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":` + tag + `}`)
				p.say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":` + tag + `}`)
				p.say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"whose":"nobody's"}}`)
			case MethodToolsCall:
				p.say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info"}}`)
				p.answer(m.ID, `{}`)
				got <- m
			case "end":
				p.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + string(subscription) + `}}`)
				p.answer(m.ID, `{}`)
			}
		}
	}), ClientOptions{Notified: func(method string, params json.RawMessage) { got <- message{Method: method, Params: params} }})
	if clientMember(c.InitializeResult(), "_meta", "uipath.com/job", "version") != "1" || c.Version() != Version2026_07_28 {
		t.Errorf("version %s, hello %s", c.Version(), c.InitializeResult())
	}
	notes := clientNotes{came: make(chan clientNote, 9)}
	listening := clientGo(clientSoon(t), c, Call{Method: MethodListen, Notified: notes.add})
	for _, want := range []string{NoteAcknowledged, "notifications/tools/list_changed"} {
		if note := testenv.Receive(t, notes.came); note.method != want {
			t.Errorf("the subscription got %v", note)
		}
	}
	if m := testenv.Receive(t, got); string(m.Params) != `{"whose":"nobody's"}` {
		t.Errorf("what belongs to no call is %s %s", m.Method, m.Params)
	}
	var logged []string
	_, err := c.Call(clientSoon(t), Call{
		Method: MethodToolsCall, Params: json.RawMessage(`{"name":"t","_meta":{"a":1,"io.modelcontextprotocol/protocolVersion":"x"}}`),
		Info: json.RawMessage(`{"name":"agent"}`), Capabilities: json.RawMessage(`{"extensions":{}}`),
		Notified: func(method string, _ json.RawMessage) { logged = append(logged, method) },
	})
	if err != nil || len(logged) != 1 {
		t.Errorf("the call logged %v, %v", logged, err)
	}
	const want = `{"name":"t","_meta":{"a":1,"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientInfo":{"name":"agent"},"io.modelcontextprotocol/clientCapabilities":{"extensions":{}}}}`
	if m := testenv.Receive(t, got); string(m.Params) != want {
		t.Errorf("the server got %s", m.Params)
	}
	if _, err := c.Call(clientSoon(t), Call{Method: "end"}); err != nil {
		t.Error(err)
	}
	if r := testenv.Receive(t, listening); !errors.Is(r.err, errClientSubscription) {
		t.Errorf("the subscription ended with %v", r.err)
	}
}
