package runner

import (
	"errors"

	"github.com/evalrun/evalrun/internal/input"
)

// ErrLacking marks the errors that say that this machine lacks something: a program, or what an
// isolation needs.
var ErrLacking = errors.New("this machine lacks something")

// lackingError has the text of the error in it alone.
type lackingError struct{ error }

func (e lackingError) Is(target error) bool { return target == ErrLacking }
func (e lackingError) Unwrap() error        { return e.error }

// lacking marks an error with ErrLacking.
func lacking(err error) error { return lackingError{err} }

// InputError is an error in the input: an option, a file, an id. Its text is for the person who
// gave it, and Unwrap returns the error itself, such as the problems of a file. All other errors of
// this package are failures of evalrun or of the machine.
type InputError = input.Error

func inputError(format string, args ...any) error { return input.Errorf(format, args...) }
