package taskcache

import (
	"runtime"
	"syscall"
)

// attributes are those of git's process: without a terminal, so that nothing asks there, and ended
// with this one. done is called when it has ended, on the same goroutine.
func attributes() (attr *syscall.SysProcAttr, done func()) {
	// The signal comes when the thread ends that has started the process, so it is kept.
	runtime.LockOSThread()
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}, runtime.UnlockOSThread
}
