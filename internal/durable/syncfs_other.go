//go:build !linux

package durable

import "errors"

// syncFileSystem is not to be had here.
func syncFileSystem(string) error { return errors.ErrUnsupported }
