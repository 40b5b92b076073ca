//go:build !linux

package durable

import "errors"

// syncFileSystem is not supported here.
func syncFileSystem(string) error { return errors.ErrUnsupported }
