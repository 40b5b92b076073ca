package image

import (
	"os/exec"
	"runtime"
	"syscall"
)

// alone runs a command in PID and mount namespaces of its own, and ends it when evalrun ends: no
// process and no mount of a build outlives it, however it or evalrun ends. It needs root.
func alone(cmd *exec.Cmd) error {
	unshare, err := exec.LookPath("unshare")
	if err != nil {
		return err
	}
	cmd.Args = append([]string{unshare, "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--", cmd.Path}, cmd.Args[1:]...)
	cmd.Path = unshare
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	// The signal comes when the thread ends that has started the command, so it is kept.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return cmd.Run()
}
