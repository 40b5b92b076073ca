package serve

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/evalrun/evalrun/internal/input"
)

// query reads the parameters of a request. It keeps the first error.
type query struct {
	values url.Values
	err    error
}

// newQuery makes sure that the handler knows the names of all parameters, and that each comes once.
func newQuery(r *http.Request, known ...string) *query {
	q := &query{}
	var err error
	if q.values, err = url.ParseQuery(r.URL.RawQuery); err != nil {
		q.fail("the query is not well formed")
	}
	for name, values := range q.values {
		switch {
		case !slices.Contains(known, name):
			q.fail("there is no parameter %s%s", quoted(name), input.Suggest(name, known))
		case len(values) > 1:
			q.fail("%s: expected it once", name)
		}
	}
	return q
}

func (q *query) fail(format string, args ...any) {
	if q.err == nil {
		q.err = problem(http.StatusBadRequest, "invalid-parameter", fmt.Sprintf(format, args...))
	}
}

func (q *query) text(name string) string { return q.values.Get(name) }

// number reads a whole number within bounds.
func (q *query) number(name string, otherwise, least, most int64) int64 {
	text := q.values.Get(name)
	if !q.values.Has(name) {
		return otherwise
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < least || n > most {
		q.fail("%s: expected a whole number from %d to %d, got %s", name, least, most, quoted(text))
		return otherwise
	}
	return n
}

// flag reads true or false; nil if the parameter is missing.
func (q *query) flag(name string) *bool {
	if !q.values.Has(name) {
		return nil
	}
	b, err := strconv.ParseBool(q.values.Get(name))
	if err != nil {
		q.fail("%s: expected true or false, got %s", name, quoted(q.values.Get(name)))
	}
	return &b
}

// cursor reads the n parts of the parameter cursor; nil if it is missing.
func (q *query) cursor(n int) []string {
	if !q.values.Has("cursor") {
		return nil
	}
	data, err := base64.RawURLEncoding.DecodeString(q.values.Get("cursor"))
	parts := strings.Split(string(data), " ")
	if err != nil || len(parts) != n {
		q.badCursor()
		return nil
	}
	return parts
}

func (q *query) badCursor() { q.fail("cursor: expected the nextCursor of an answer") }

// cursorOf makes a cursor of parts, which contain no space.
func cursorOf(parts ...string) *string {
	text := base64.RawURLEncoding.EncodeToString([]byte(strings.Join(parts, " ")))
	return &text
}

// quoted quotes a text of the caller's in a message.
func quoted(s string) string {
	const most = 100
	if len(s) > most {
		s = s[:most] + "…"
	}
	return strconv.Quote(s)
}
