//go:build !linux

package taskcache

import "syscall"

// attributes returns the attributes of git's process: it has no terminal, so that nothing asks
// there.
func attributes() (attr *syscall.SysProcAttr, done func()) {
	return &syscall.SysProcAttr{Setsid: true}, func() {}
}
