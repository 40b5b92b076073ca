package redact

import (
	"bytes"
	"io"
	"strings"
	"sync"
)

// WebhookPrefix begins the token in the webhook URL of a trigger (see package webhook). Such tokens
// are recognized by their form: there are as many as triggers, and other processes give them out.
// Every Redactor replaces them, a nil one too. They are the same in JSON and in URLs. In base64
// they are not found.
const WebhookPrefix = "evalrun_hook_"

const (
	webhookMarker = "[redacted:EVALRUN_WEBHOOK_URL]"
	// webhookLength is the most bytes of a token after the prefix.
	webhookLength = 64
)

// tokenEnd returns the end of the token at the beginning of p. The token may be cut short.
func tokenEnd[T string | []byte](p T) int {
	end := len(WebhookPrefix)
	for end < min(len(p), len(WebhookPrefix)+webhookLength) && isTokenByte(p[end]) {
		end++
	}
	return end
}

func isTokenByte(c byte) bool {
	return c == '-' || c == '_' || '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
}

// hideWebhooks replaces the tokens in p; it returns p itself if there are none.
func hideWebhooks(p []byte) []byte {
	at := bytes.Index(p, []byte(WebhookPrefix))
	if at < 0 {
		return p
	}
	var out []byte
	for at >= 0 {
		out = append(append(out, p[:at]...), webhookMarker...)
		p = p[at+tokenEnd(p[at:]):]
		at = bytes.Index(p, []byte(WebhookPrefix))
	}
	return append(out, p...)
}

func hideWebhooksIn(s string) string {
	if !strings.Contains(s, WebhookPrefix) {
		return s
	}
	return string(hideWebhooks([]byte(s)))
}

// webhookWriter replaces the tokens in a stream, wherever it is cut. It holds back text that could
// be the beginning of a token.
type webhookWriter struct {
	mu   sync.Mutex
	w    io.Writer
	held []byte
}

// Write implements io.Writer.
func (w *webhookWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := p
	if len(w.held) > 0 {
		all = append(w.held, p...)
	}
	from := openToken(all)
	w.held = append([]byte(nil), all[from:]...)
	if from == 0 {
		return len(p), nil
	}
	if _, err := w.w.Write(hideWebhooks(all[:from])); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close writes what was held back, and leaves the writer below open.
func (w *webhookWriter) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	held := w.held
	w.held = nil
	if len(held) == 0 {
		return nil
	}
	_, err := w.w.Write(hideWebhooks(held))
	return err
}

// openToken returns the beginning of an unfinished token at the end of p, or len(p) if there is
// none.
func openToken(p []byte) int {
	if at := bytes.LastIndex(p, []byte(WebhookPrefix)); at >= 0 && at+tokenEnd(p[at:]) == len(p) &&
		len(p)-at < len(WebhookPrefix)+webhookLength {
		return at
	}
	for n := min(len(p), len(WebhookPrefix)-1); n > 0; n-- {
		if string(p[len(p)-n:]) == WebhookPrefix[:n] {
			return len(p) - n
		}
	}
	return len(p)
}
