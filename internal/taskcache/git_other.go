//go:build !linux

package taskcache

import "syscall"

// attributes are those of git's process: without a terminal, so that nothing asks there.
func attributes() (attr *syscall.SysProcAttr, done func()) {
	return &syscall.SysProcAttr{Setsid: true}, func() {}
}
