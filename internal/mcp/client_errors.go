package mcp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"
)

var (
	// ErrClosed says that the connection to the server has gone: its process has ended, or the HTTP
	// connection was refused or cut in the middle of a call. It is not known whether the server has
	// processed such a call.
	ErrClosed = errors.New("the connection to the MCP server is gone")
	// ErrSessionLost says that the server does not know the session any more, and so has not
	// processed the request.
	ErrSessionLost = errors.New("the MCP server does not know the session any more")
	// ErrUnsent says, beside ErrClosed, that the connection was gone before anything of the request
	// was written.
	ErrUnsent = errors.New("the request was not sent")

	errClientTooLong   = errors.New("a message of the MCP server is too long")
	errClientMalformed = errors.New("the MCP server's answer is not valid")
)

// StatusError is an HTTP status that is no success and came without a JSON-RPC answer, or is 401 or
// 403.
type StatusError struct {
	Status int
	Body   string // the beginning
	// Challenge is the header WWW-Authenticate, which says what credentials a server wants and where
	// to get them.
	Challenge string
	// Answer is the JSON-RPC error that came with a 401 or 403; nil if there was none.
	Answer *Error
}

// newStatusError is the error of a response whose body begins with body.
func newStatusError(resp *http.Response, body []byte) *StatusError {
	return &StatusError{
		Status: resp.StatusCode, Body: clientExcerpt(body),
		Challenge: clientExcerpt([]byte(strings.Join(resp.Header.Values("WWW-Authenticate"), ", "))),
	}
}

func (e *StatusError) Error() string {
	text := fmt.Sprintf("the MCP server answered HTTP %d %s", e.Status, http.StatusText(e.Status))
	if e.Challenge != "" {
		text += " (WWW-Authenticate: " + e.Challenge + ")"
	}
	if e.Body != "" {
		text += ": " + e.Body
	}
	return text
}

// Unwrap returns the answer.
func (e *StatusError) Unwrap() error {
	if e.Answer == nil {
		return nil
	}
	return e.Answer
}

// Unauthorized reports whether the server wants other credentials, or none at all of this client.
func (e *StatusError) Unauthorized() bool {
	return e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden
}

// clientExcerpt is the beginning of a body, on one line and without characters that a terminal
// would obey.
func clientExcerpt(body []byte) string {
	const limit = 300
	short := body[:min(len(body), limit)]
	for len(short) > 0 && len(short) < len(body) && !utf8.Valid(short) && len(short) > limit-utf8.UTFMax {
		short = short[:len(short)-1] // not in the middle of a character
	}
	text := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(string(short), "\uFFFD"))
	text = strings.Join(strings.Fields(text), " ")
	if len(short) < len(body) {
		text += "…"
	}
	return text
}

// clientContextError says that a context has ended, and why.
func clientContextError(ctx context.Context) error { return clientEnded(ctx.Err(), context.Cause(ctx)) }

// clientEnded is the error of a context, with its cause.
func clientEnded(err, cause error) error {
	if !errors.Is(cause, err) {
		return fmt.Errorf("%w: %w", err, cause)
	}
	return err
}

// clientGone wraps ErrClosed around the reason why a connection was cut.
func clientGone(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrClosed, fmt.Errorf(format, args...))
}

// clientUnsent adds ErrUnsent to the error that has ended a connection.
func clientUnsent(err error) error { return fmt.Errorf("%w; %w", err, ErrUnsent) }
