package web

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/service"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/runner"
)

// pageError tells a person what is wrong with their request for a page.
type pageError struct {
	status int
	text   string
}

func (e *pageError) Error() string { return e.text }

func notFound(format string, args ...any) error {
	return &pageError{http.StatusNotFound, fmt.Sprintf(format, args...)}
}

// explain returns the status and the text of the answer to an error.
func explain(err error) (int, string) {
	var known *pageError
	var wrong *runner.InputError
	switch {
	case errors.As(err, &known):
		return known.status, known.text
	case errors.Is(err, service.ErrNotFound):
		return http.StatusNotFound,
			"there is nothing with this id in the store, or not any more: runs are removed by evalrun prune and evalrun rm"
	case errors.Is(err, store.ErrMoved):
		return http.StatusServiceUnavailable, "the store " + redact.Line(err.Error())
	case errors.Is(err, store.ErrClosed):
		return http.StatusServiceUnavailable, "the server is being stopped; load the page again when it is back"
	case errors.As(err, &wrong):
		return http.StatusUnprocessableEntity, wrong.Error()
	}
	return http.StatusInternalServerError, "evalrun itself failed; its log says why"
}

// unreadable splits an error about all runs into messages about single runs, which a page shows
// beside the other runs, and an error that leaves nothing else to show.
func unreadable(err error) (said []string, rest error) {
	all := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	}
	for _, e := range all {
		if errors.As(e, new(*runner.UnreadableError)) {
			said = append(said, redact.Line(e.Error()))
		} else {
			rest = errors.Join(rest, e)
		}
	}
	return said, rest
}
