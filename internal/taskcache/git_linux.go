package taskcache

import (
	"runtime"
	"syscall"
)

// attributes returns the attributes of git's process: it has no terminal, so that nothing asks
// there, and ends with this process. done is called when it has ended, on the same goroutine.
func attributes() (attr *syscall.SysProcAttr, done func()) {
	// The signal comes when the thread that has started the process ends, so the thread is kept.
	runtime.LockOSThread()
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}, runtime.UnlockOSThread
}
