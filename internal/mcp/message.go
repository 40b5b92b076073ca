package mcp

import (
	"encoding/json"
	"errors"

	"github.com/evalrun/evalrun/internal/jsonobj"
)

// message is one JSON-RPC message. Its slices are parts of what was read, and ids are as the other side wrote them.
type message struct {
	id     json.RawMessage // nil in a notification
	method string          // empty in a response
	params json.RawMessage
	result json.RawMessage
	err    json.RawMessage
}

var errNoMessage = errors.New("expected one JSON-RPC 2.0 message")

// parseMessage takes a message apart.
func parseMessage(b []byte) (m message, err error) {
	if !jsonobj.Valid(b) {
		return message{}, errNoMessage
	}
	var version, method []byte
	jsonobj.Members(b[jsonobj.SkipSpace(b, 0):], func(key, value []byte) {
		switch string(key) {
		case "jsonrpc":
			version = value
		case "id":
			m.id = value
		case "method":
			method = value
		case "params":
			m.params = value
		case "result":
			m.result = value
		case "error":
			m.err = value
		}
	})
	if string(version) != `"2.0"` {
		return message{}, errNoMessage
	}
	if method == nil {
		if m.result != nil && jsonobj.IsNull(m.err) {
			m.err = nil
		}
		if m.id == nil || (m.result == nil) == (m.err == nil) {
			return m, errNoMessage
		}
		return m, nil
	}
	var ok bool
	if m.method, ok = jsonobj.Unquote(method); !ok || m.method == "" {
		return m, errNoMessage
	}
	return m, nil
}

func (m *message) isRequest() bool  { return m.method != "" && m.id != nil }
func (m *message) isResponse() bool { return m.method == "" }

// encode writes the message without a line feed.
func (m *message) encode() []byte {
	const fixed = len(`{"jsonrpc":"2.0","id":,"method":"","params":}` + "\n")
	b := make([]byte, 0, fixed+len(m.id)+len(m.method)+len(m.params)+len(m.result)+len(m.err))
	b = append(b, `{"jsonrpc":"2.0"`...)
	if m.id != nil {
		b = append(append(b, `,"id":`...), m.id...)
	}
	switch {
	case m.method != "":
		b = jsonobj.AppendQuoted(append(b, `,"method":`...), m.method)
		if m.params != nil {
			b = append(append(b, `,"params":`...), m.params...)
		}
	case m.err != nil:
		b = append(append(b, `,"error":`...), m.err...)
	default:
		b = append(append(b, `,"result":`...), m.result...)
	}
	return append(b, '}')
}
