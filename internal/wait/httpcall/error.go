package httpcall

import (
	"net/http"
	"time"

	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/retry"
)

// Error says that a request to an agent has failed.
type Error struct {
	Err error
	// Category is that of the fault which the failure is, if nothing helps.
	Category fault.Category
	// Sent says that the agent may have taken the request, Temporary that it is worth another try,
	// after After at the earliest.
	Sent, Temporary bool
	After           time.Duration
	// Status is that of the answer, Code that of a JSON-RPC error; 0 if there is none.
	Status, Code int
}

func (e *Error) Error() string { return e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

// CategoryOf is the category of the fault that an agent's answer with a status of failure is.
func CategoryOf(status int) fault.Category {
	switch {
	case status < 400, retry.Temporary(status), status == http.StatusUnauthorized, status == http.StatusForbidden,
		status == http.StatusNotFound:
		return fault.Start
	}
	return fault.AgentError
}
