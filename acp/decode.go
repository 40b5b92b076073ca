package acp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"regexp"

	"github.com/evalrun/evalrun/internal/jsonobj"
)

// message is one JSON-RPC message as it came. Its slices are parts of the line.
type message struct {
	id, params, result, err []byte
	method                  string
}

// decoder turns an agent's lines into messages.
//
// Before the first message much is forgiven, since an agent may be started behind a terminal or a shell that greets:
// escape sequences are taken out, and text before the first brace is skipped. After it a line is messages or it is noise.
// Several messages glued together in one line are accepted always.
type decoder struct {
	started bool
}

// decode returns the messages of a line; none means that the line is noise.
func (d *decoder) decode(line []byte) []message {
	messages := parseMessages(line)
	if messages == nil && !d.started {
		line = escapeSequence.ReplaceAll(line, nil)
		if brace := bytes.IndexByte(line, '{'); brace >= 0 {
			messages = parseMessages(line[brace:])
		}
	}
	d.started = d.started || messages != nil
	return messages
}

// escapeSequence matches what terminals understand: CSI and OSC sequences (ECMA-48), the latter ended by BEL or ST.
var escapeSequence = regexp.MustCompile("\x1b\\[[0-?]*[ -/]*[@-~]|\x1b\\][^\x07\x1b]*(?:\x07|\x1b\\\\)")

// parseMessages returns the messages that make up a line, or nil if anything else is in it.
func parseMessages(line []byte) (messages []message) {
	for i := jsonobj.SkipSpace(line, 0); i < len(line); i = jsonobj.SkipSpace(line, i) {
		m, size := parseMessage(line[i:])
		if size < 0 {
			return nil
		}
		messages = append(messages, m)
		i += size
	}
	return messages
}

// parseMessage returns the message that b starts with and its length, or -1. A message is an object with jsonrpc "2.0"
// that has either a method and no outcome, or an id and no method. What an agent logs as JSON is neither.
// A response without an outcome, or with two, counts: whoever waits for it is told that it is wrong.
func parseMessage(b []byte) (m message, size int) {
	var version, method []byte
	size = jsonobj.Members(b, func(key, value []byte) {
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
	if size < 0 || string(version) != `"2.0"` || !json.Valid(b[:size]) {
		return m, -1
	}
	if method == nil {
		if m.id == nil {
			return m, -1
		}
		if m.result != nil && jsonobj.IsNull(m.err) {
			m.err = nil // "error": null beside a result is wrong but clear
		}
		return m, size
	}
	var ok bool
	if m.method, ok = jsonobj.Unquote(method); !ok || m.result != nil || m.err != nil {
		return m, -1
	}
	return m, size
}

// lineReader reads lines up to a length.
type lineReader struct {
	r   *bufio.Reader
	max int
}

func newLineReader(r io.Reader, limit int) *lineReader {
	return &lineReader{bufio.NewReaderSize(r, 64<<10), limit}
}

// next returns the next line without its end. The last line may lack a line feed. The caller owns the line.
func (l *lineReader) next() ([]byte, error) {
	var line []byte
	for {
		part, err := l.r.ReadSlice('\n')
		if len(line)+len(bytes.TrimSuffix(part, []byte{'\n'})) > l.max {
			return nil, ErrLineTooLong
		}
		line = append(line, part...)
		switch {
		case err == nil:
			return bytes.TrimRight(line, "\r\n"), nil
		case errors.Is(err, bufio.ErrBufferFull):
		case len(line) > 0:
			return line, nil // the error comes again
		default:
			return nil, err
		}
	}
}
