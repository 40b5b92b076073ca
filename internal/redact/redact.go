// Package redact keeps secrets out of the output of evalrun: every file, event, log and
// terminal line passes a [Redactor], which replaces each secret by [redacted:NAME],
// however it is encoded (as JSON in JSON to any depth, else up to three times over) and wherever a
// stream is cut.
//
// A nil *Redactor knows no secret but the webhooks of triggers. [FromEnviron] says which variables
// of an environment are secrets, and [Terminal] makes text harmless to a terminal or a CI log.
package redact

import (
	"encoding/json"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// minLength is the least number of characters of a secret: shorter values are too likely to be
// ordinary words.
const minLength = 8

// Redactor replaces secrets. It is safe for concurrent use.
type Redactor struct {
	m *matcher
}

// New makes a redactor of values by name. White space around a value is not part of it, and values
// of less than 8 characters are left out; if nothing is left the redactor is nil.
func New(values map[string]string) *Redactor {
	names := make([]string, 0, len(values))
	for name := range values {
		names = append(names, name)
	}
	slices.Sort(names) // if two names have one value the first is shown
	m := newMatcher()
	for _, name := range names {
		value := strings.TrimSpace(values[name])
		if utf8.RuneCountInString(value) < minLength {
			continue
		}
		marker := "[redacted:" + cleanName(name) + "]"
		for _, v := range variants(value) {
			m.add(v, marker)
		}
	}
	if m.empty() {
		return nil
	}
	m.link()
	return &Redactor{m}
}

// cleanName keeps the characters of a name that mean nothing in JSON, XML, a URL or a shell.
func cleanName(name string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || r == '-' || r == '.' || '0' <= r && r <= '9' || 'A' <= r && r <= 'Z' || 'a' <= r && r <= 'z' {
			return r
		}
		return '_'
	}, name)
}

// Bytes returns p without secrets; p itself, unchanged, if there are none.
func (r *Redactor) Bytes(p []byte) []byte { return hideWebhooks(r.bytes(p)) }

func (r *Redactor) bytes(p []byte) []byte {
	if !r.has(p) {
		return p
	}
	out := &sliceWriter{buf: make([]byte, 0, len(p))}
	s := newStream(r.m, out)
	_ = s.write(p) // writing to memory does not fail
	_ = s.close()
	return out.buf
}

func (r *Redactor) has(p []byte) bool {
	if r == nil {
		return false
	}
	_, found := r.m.occursIn(p)
	return found
}

// String returns s without secrets.
func (r *Redactor) String(s string) string {
	if r != nil && s != "" {
		if p := []byte(s); r.has(p) {
			s = string(r.bytes(p))
		}
	}
	return hideWebhooksIn(s)
}

// Writer returns a writer that writes its input to w without secrets. It holds back text that
// could be the beginning of a secret. Close writes that text and leaves w open.
func (r *Redactor) Writer(w io.Writer) io.WriteCloser {
	hooks := &webhookWriter{w: w}
	if r == nil {
		return hooks
	}
	return &writer{stream: newStream(r.m, hooks), below: hooks}
}

// JSON returns a JSON value without secrets. The result is valid JSON if raw is.
func (r *Redactor) JSON(raw json.RawMessage) json.RawMessage {
	if r != nil && len(raw) > 0 {
		raw = r.json(raw)
	}
	return hideWebhooks(raw)
}

type sliceWriter struct{ buf []byte }

func (w *sliceWriter) Write(p []byte) (int, error) {
	w.buf = append(w.buf, p...)
	return len(p), nil
}
