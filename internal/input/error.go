package input

import "fmt"

// Error is an error in the user's input: an option, a file, an id. Its text is for the person who
// gave it.
type Error struct{ Err error }

func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the error itself, such as the problems of a file.
func (e *Error) Unwrap() error { return e.Err }

// Errorf makes an [Error].
func Errorf(format string, args ...any) error { return &Error{fmt.Errorf(format, args...)} }
