package acp

import (
	"bytes"
	"regexp"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/jsonrpc"
)

// decoder turns an agent's lines into messages.
//
// Before the first message the decoder forgives much, since an agent may be started behind a
// terminal or a shell that greets: it takes out escape sequences, and skips text before the first
// brace. After it a line is messages or it is noise. Several messages glued together in one line
// are always accepted.
type decoder struct {
	started bool
}

// decode returns the messages of a line; none means that the line is noise.
func (d *decoder) decode(line []byte) []jsonrpc.Message {
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

// escapeSequence matches control sequences of terminals: CSI and OSC sequences (ECMA-48), the
// latter ended by BEL or ST.
var escapeSequence = regexp.MustCompile("\x1b\\[[0-?]*[ -/]*[@-~]|\x1b\\][^\x07\x1b]*(?:\x07|\x1b\\\\)")

// parseMessages returns the messages that make up a line, or nil if anything else is in it. A
// message has either a method and no outcome, or an id and no method; JSON that an agent logs is
// neither. A response without an outcome, or with two, counts: the call that waits for it gets an
// error.
func parseMessages(line []byte) (messages []jsonrpc.Message) {
	for i := jsonobj.SkipSpace(line, 0); i < len(line); i = jsonobj.SkipSpace(line, i) {
		m, size := jsonrpc.Cut(line[i:])
		if size < 0 || m.Method == "" && m.ID == nil || m.Method != "" && (m.Result != nil || m.Error != nil) {
			return nil
		}
		messages = append(messages, m)
		i += size
	}
	return messages
}
