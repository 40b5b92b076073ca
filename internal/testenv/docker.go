package testenv

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// NeedDocker skips a test where no Docker daemon can be started.
func NeedDocker(t testing.TB) {
	t.Helper()
	Need(t, Docker, LacksDocker())
}

// LacksDocker returns the reason why no Docker daemon can be started here, or nil if one can.
func LacksDocker() error {
	for _, program := range []string{"dockerd", "containerd", "runc", "unshare", "ip"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("no Docker daemon can be started: %w", err)
		}
	}
	if os.Geteuid() != 0 {
		return errors.New("a Docker daemon is started by root alone")
	}
	return nil
}

// RemoteDocker is a Docker daemon in namespaces of its own: no folder in which tests work is there,
// and its network is not this machine's. It stands for a daemon on another machine.
type RemoteDocker struct {
	// Host is its address, as in DOCKER_HOST.
	Host string
	dir  string
	log  *os.File
	cmd  *exec.Cmd
}

// dockerDir is the variable that names a folder for the daemon's own. CI ends by the file unshare.pid
// there what tests could not end.
const dockerDir = "EVALRUN_DOCKER_DIR"

// daemonScript starts the daemon as process 1 of its namespaces, so that its end ends all of them.
// The daemon's folder stays the only one that both sides see, for its socket.
const daemonScript = `mount -t tmpfs none /tmp
for d in /root /home /work /srv /opt; do [ ! -d $d ] || mount -t tmpfs none $d; done
ip link set lo up
exec dockerd --iptables=false --ip6tables=false --storage-driver=overlay2 --data-root "$0/data" --exec-root "$0/exec" --pidfile "$0/pid" --host "unix://$0/s"`

// StartDocker starts such a daemon. The caller ends it, on every way out.
func StartDocker() (*RemoteDocker, error) {
	parent := cmp.Or(os.Getenv(dockerDir), "/var/lib") // tests work elsewhere, and an overlay needs a real disk
	dir, err := os.MkdirTemp(parent, "evalrun-docker-")
	if err != nil {
		return nil, err
	}
	d := &RemoteDocker{Host: "unix://" + dir + "/s", dir: dir}
	if d.log, err = os.Create(filepath.Join(dir, "log")); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	d.cmd = exec.Command("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-ec", daemonScript, dir)
	d.cmd.Stdout, d.cmd.Stderr = d.log, d.log
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := d.cmd.Start(); err != nil {
		return nil, errors.Join(err, d.log.Close(), os.RemoveAll(dir))
	}
	if err := os.WriteFile(filepath.Join(dir, "unshare.pid"), []byte(strconv.Itoa(d.cmd.Process.Pid)), 0o600); err != nil {
		return nil, errors.Join(err, d.End())
	}
	if !Eventually(func() bool {
		c, err := net.Dial("unix", dir+"/s")
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	}) {
		said, _ := os.ReadFile(d.log.Name())
		return nil, errors.Join(fmt.Errorf("the Docker daemon does not answer: %s", said), d.End())
	}
	return d, nil
}

// End ends the daemon with everything that runs in it, and removes its files.
func (d *RemoteDocker) End() error {
	_ = syscall.Kill(-d.cmd.Process.Pid, syscall.SIGKILL) // its namespaces end with it, and their mounts
	_ = d.cmd.Wait()
	err := d.log.Close()
	if !Eventually(func() bool { return os.RemoveAll(d.dir) == nil }) { // the kernel may still unmount
		err = errors.Join(err, os.RemoveAll(d.dir))
	}
	return err
}
