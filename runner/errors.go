package runner

import "github.com/evalrun/evalrun/internal/input"

// InputError is an error in the input: an option, a file, an id. Its text is for the person who
// gave it, and Unwrap returns the error itself, such as the problems of a file. All other errors of
// this package are failures of evalrun or of the machine.
type InputError = input.Error

func inputError(format string, args ...any) error { return input.Errorf(format, args...) }
