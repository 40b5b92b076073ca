package jsonvalue

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"unicode/utf8"
)

// FromOutput is the payload that some output stands for: the JSON document that it is, else its
// text; null if it is empty.
func FromOutput(out []byte) json.RawMessage {
	out = bytes.TrimSpace(bytes.TrimPrefix(out, []byte("\xef\xbb\xbf")))
	switch {
	case len(out) == 0:
		return json.RawMessage("null")
	case utf8.Valid(out) && Check(out) == nil:
		return json.RawMessage(out)
	}
	return Marshal(string(out))
}

// ReadPayload reads at most [MaxPayload] bytes; more is [ErrTooLong].
func ReadPayload(r io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, MaxPayload+1))
	if err == nil && len(b) > MaxPayload {
		return nil, ErrTooLong
	}
	return b, err
}

// ErrTooLong is the error of a payload of more than [MaxPayload] bytes.
var ErrTooLong = errors.New("the text is too long")

// MaxPayload is how large the result of a job may be.
const MaxPayload = 16 << 20

// Excerpt is the beginning of a text, for an error message.
func Excerpt(b []byte) string {
	const most = 300
	s := strings.ToValidUTF8(strings.TrimSpace(string(b)), "�")
	if s == "" {
		return "(empty)"
	}
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
