package image

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// privateRuntimes hides the state that runc and crun keep of the containers of a build, which they
// would leave behind when they are killed.
const privateRuntimes = `for dir in /run/runc /run/crun; do mkdir -p "$dir" && mount -t tmpfs none "$dir" || exit; done; exec "$0" "$@"`

// alone runs a command, and ends it when evalrun ends. For root the command has PID and mount
// namespaces of its own: no process and no mount of a build outlives it, however it or evalrun
// ends.
func alone(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	// The signal comes when the thread that has started the command ends, so the thread is kept.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if os.Geteuid() != 0 {
		return cmd.Run()
	}
	unshare, err := exec.LookPath("unshare")
	if err != nil {
		return err
	}
	cmd.Args = append([]string{unshare, "--mount", "--pid", "--fork", "--kill-child",
		"--mount-proc", "--", "sh", "-c", privateRuntimes, cmd.Path}, cmd.Args[1:]...)
	cmd.Path = unshare
	return cmd.Run()
}
