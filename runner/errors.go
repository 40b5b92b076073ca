package runner

import (
	"fmt"
)

// InputError is an error in what was given: an option, a file, an id. Its text is for the person
// who gave it. All other errors of this package are failures of evalrun or of the machine.
type InputError struct{ Err error }

func (e *InputError) Error() string { return e.Err.Error() }

// Unwrap gives the error itself, such as the problems of a file.
func (e *InputError) Unwrap() error { return e.Err }

func inputError(format string, args ...any) error {
	return &InputError{fmt.Errorf(format, args...)}
}
