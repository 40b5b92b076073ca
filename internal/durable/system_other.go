//go:build !linux

package durable

import (
	"errors"
	"os"
)

// openNameless says that the file system has no files without a name.
func openNameless(string, os.FileMode) (*os.File, error) { return nil, nil }

func giveName(*os.File, string) error { return nil }

// syncFileSystem is not supported here.
func syncFileSystem(string) error { return errors.ErrUnsupported }
