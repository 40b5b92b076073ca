package mcp

import (
	"encoding/json"
	"errors"

	"github.com/evalrun/evalrun/rawjson"
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
	b = b[rawjson.SkipSpace(b, 0):]
	if !rawjson.Valid(b) {
		return m, errNoMessage
	}
	var version, method []byte
	size := rawjson.Members(b, func(key, value []byte) {
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
	if size < 0 || string(version) != `"2.0"` {
		return m, errNoMessage
	}
	if method == nil {
		if m.result != nil && rawjson.IsNull(m.err) {
			m.err = nil
		}
		if m.id == nil || (m.result == nil) == (m.err == nil) {
			return m, errNoMessage
		}
		return m, nil
	}
	var ok bool
	if m.method, ok = rawjson.Unquote(method); !ok || m.method == "" {
		return m, errNoMessage
	}
	return m, nil
}

func (m *message) isRequest() bool  { return m.method != "" && m.id != nil }
func (m *message) isResponse() bool { return m.method == "" }

// encode writes the message without a line feed.
func (m *message) encode() []byte {
	b := make([]byte, 0, len(m.params)+len(m.result)+len(m.err)+len(m.id)+len(m.method)+64)
	b = append(b, `{"jsonrpc":"2.0"`...)
	if m.id != nil {
		b = append(append(b, `,"id":`...), m.id...)
	}
	if m.method != "" {
		b = append(append(b, `,"method":`...), rawjson.Quote(m.method)...)
		if m.params != nil {
			b = append(append(b, `,"params":`...), m.params...)
		}
		return append(b, '}')
	}
	if m.err != nil {
		return append(append(append(b, `,"error":`...), m.err...), '}')
	}
	return append(append(append(b, `,"result":`...), m.result...), '}')
}
