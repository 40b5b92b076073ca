package wait

import (
	"errors"
	"time"
)

// RetryError is an error after which a call is tried again, not before After.
type RetryError struct {
	After time.Duration
	Err   error
	// NotStarted says that the call was a start, and has certainly not begun a job.
	NotStarted bool
}

// ErrNoFind is the error of Find where a source has no means to look for a job.
var ErrNoFind = errors.New("the jobs of the eval set have no find request for this process")

// NotStarted marks the error of a start: the call has certainly not begun a job.
func NotStarted(err error) error {
	var retry *RetryError
	if errors.As(err, &retry) {
		return &RetryError{retry.After, retry.Err, true}
	}
	return err
}

func (e *RetryError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *RetryError) Unwrap() error { return e.Err }

// errTooLate is the error of a start whose claim has run out.
var errTooLate = errors.New("the job was not started: the wait is over by now, or another process may start it")

// MayStart returns nil while the claim of a start lasts. A source calls it just before the request
// that starts the job.
func (j Job) MayStart(now time.Time) error {
	if j.Until.IsZero() || now.Before(j.Until) {
		return nil
	}
	return &RetryError{Err: errTooLate, NotStarted: true}
}

// ErrUnwatched says that nobody but a delivery can tell whether a job is done.
var ErrUnwatched = errors.New("nobody can tell whether the job is done")
