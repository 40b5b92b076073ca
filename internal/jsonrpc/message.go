// Package jsonrpc implements JSON-RPC 2.0 as MCP and ACP use it: one type of message, whose params,
// results, errors and ids stay as they came, and messages as lines of a stream.
//
// It knows nothing of methods and of their handlers.
package jsonrpc

import (
	"bytes"
	"encoding/json"
	"errors"

	"github.com/evalrun/evalrun/internal/jsonobj"
)

// Message is one message. Its slices are parts of the text that was read; missing ones are nil.
type Message struct {
	ID     json.RawMessage // nil in a notification
	Method string          // empty in a response
	Params json.RawMessage
	Result json.RawMessage
	Error  json.RawMessage
}

// ErrNoMessage is the error of [Parse].
var ErrNoMessage = errors.New("expected one JSON-RPC 2.0 message")

// IsRequest reports whether the message wants an answer.
func (m *Message) IsRequest() bool { return m.Method != "" && m.ID != nil }

// IsResponse reports whether the message is an answer.
func (m *Message) IsResponse() bool { return m.Method == "" }

// Parse takes a text apart that is one message. A response has an id and one of result and error.
func Parse(text []byte) (Message, error) {
	text = text[jsonobj.SkipSpace(text, 0):]
	m, size := Cut(text)
	if size < 0 || jsonobj.SkipSpace(text, size) != len(text) {
		return Message{}, ErrNoMessage
	}
	if m.Method == "" && (m.ID == nil || (m.Result == nil) == (m.Error == nil)) {
		return m, ErrNoMessage
	}
	return m, nil
}

// Cut takes apart the message that b starts with, and returns its length; -1 if there is none. A
// message is an object with jsonrpc "2.0", and its method, if there is one, is not empty. The
// caller checks whether it has a result and an error that fit.
func Cut(b []byte) (m Message, size int) {
	var version, method []byte
	size = jsonobj.Members(b, func(key, value []byte) {
		switch string(key) {
		case "jsonrpc":
			version = value
		case "id":
			m.ID = value
		case "method":
			method = value
		case "params":
			m.Params = value
		case "result":
			m.Result = value
		case "error":
			m.Error = value
		}
	})
	if size < 0 || string(version) != `"2.0"` || !jsonobj.Valid(b[:size]) {
		return Message{}, -1
	}
	if method == nil {
		if m.Result != nil && jsonobj.IsNull(m.Error) {
			m.Error = nil // "error": null beside a result is wrong but clear
		}
		return m, size
	}
	var ok bool
	if m.Method, ok = jsonobj.Unquote(method); !ok || m.Method == "" {
		return Message{}, -1
	}
	return m, size
}

// SplitBatch returns the messages of an array, or false if the text is none.
func SplitBatch(text []byte) (messages []json.RawMessage, isBatch bool) {
	if i := jsonobj.SkipSpace(text, 0); i == len(text) || text[i] != '[' {
		return nil, false
	}
	err := json.Unmarshal(text, &messages)
	return messages, err == nil
}

// JoinBatch returns an array of messages.
func JoinBatch(messages [][]byte) []byte {
	out := append([]byte{'['}, bytes.Join(messages, []byte{','})...)
	return append(out, ']')
}

// Encode writes the message without a line feed at its end.
func (m *Message) Encode() []byte {
	const fixed = len(`{"jsonrpc":"2.0","id":,"method":"","params":}` + "\n")
	b := make([]byte, 0, fixed+len(m.ID)+len(m.Method)+len(m.Params)+len(m.Result)+len(m.Error))
	b = append(b, `{"jsonrpc":"2.0"`...)
	if m.ID != nil {
		b = append(append(b, `,"id":`...), m.ID...)
	}
	switch {
	case m.Method != "":
		b = jsonobj.AppendQuoted(append(b, `,"method":`...), m.Method)
		if m.Params != nil {
			b = append(append(b, `,"params":`...), m.Params...)
		}
	case m.Error != nil:
		b = append(append(b, `,"error":`...), m.Error...)
	default:
		b = append(append(b, `,"result":`...), m.Result...)
	}
	return append(b, '}')
}

// OnOneLine replaces the line ends in a message by spaces. In valid JSON they are all between
// tokens.
func OnOneLine(message []byte) []byte {
	if bytes.IndexByte(message, '\n') < 0 && bytes.IndexByte(message, '\r') < 0 {
		return message
	}
	message = bytes.Clone(message)
	for i, c := range message {
		if c == '\n' || c == '\r' {
			message[i] = ' '
		}
	}
	return message
}
