package testenv

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
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

// daemonScript is process 1 of the daemon's namespaces, so that its end ends all of them. A daemon that was ended
// is started anew. Its folder stays the only one that both sides see, for its socket.
const daemonScript = `export TMPDIR=/tmp
mount -t tmpfs none /tmp
for d in /root /home /work /srv /opt; do [ ! -d $d ] || mount -t tmpfs none $d; done
ip link set lo up
for n in $(seq 1000); do
	rm -f "$0/pid"
	dockerd --iptables=false --ip6tables=false --storage-driver=overlay2 --data-root "$0/data" --exec-root "$0/exec" --pidfile "$0/pid" --host "unix://$0/s" || [ $? -gt 128 ]
done`

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
	if err := d.await(); err != nil {
		return nil, errors.Join(err, d.End())
	}
	return d, nil
}

// await waits until the daemon answers.
func (d *RemoteDocker) await() error {
	if Eventually(func() bool { return d.Ask(context.Background(), http.MethodGet, "/_ping", nil) == nil }) {
		return nil
	}
	return fmt.Errorf("the Docker daemon does not answer: %s", d.Log())
}

// Log is the last that the daemon has said.
func (d *RemoteDocker) Log() string {
	said, _ := os.ReadFile(d.log.Name()) // nothing is no reason to fail
	return string(said[max(0, len(said)-3000):])
}

// Ask makes a request of the daemon's API, and decodes the answer into a value unless that is nil.
func (d *RemoteDocker) Ask(ctx context.Context, method, path string, into any) error {
	over := d.over()
	defer over.CloseIdleConnections()
	q, err := http.NewRequestWithContext(ctx, method, "http://docker"+path, http.NoBody)
	if err != nil {
		return err
	}
	answer, err := over.RoundTrip(q)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, answer.Status)
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(answer.Body).Decode(into)
}

// over are connections with the daemon.
func (d *RemoteDocker) over() *http.Transport {
	return &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", d.dir+"/s")
	}}
}

// Import makes an image with a name of an archive of files.
func (d *RemoteDocker) Import(ctx context.Context, archive, name string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // only read
	over := d.over()
	defer over.CloseIdleConnections()
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://docker/images/create?fromSrc=-&repo="+name, f)
	if err != nil {
		return err
	}
	answer, err := over.RoundTrip(q)
	if err != nil {
		return err
	}
	said, err := io.ReadAll(answer.Body)
	err = errors.Join(err, answer.Body.Close())
	if err == nil && (answer.StatusCode != http.StatusOK || bytes.Contains(said, []byte(`"error"`))) {
		err = fmt.Errorf("import %s: %s", archive, said)
	}
	return err
}

// Restart ends the daemon by a signal, and returns when the next one answers. What runs in containers outlives
// one that SIGKILL ends, until the next one ends it.
func (d *RemoteDocker) Restart(signal syscall.Signal) error {
	pid := childOf(childOf(d.cmd.Process.Pid)) // unshare, the script, the daemon
	if pid == 0 {
		return errors.New("the Docker daemon does not run")
	}
	if err := syscall.Kill(pid, signal); err != nil {
		return err
	}
	if !Eventually(func() bool { return syscall.Kill(pid, 0) != nil }) {
		return fmt.Errorf("the Docker daemon does not end at %v", signal)
	}
	return d.await()
}

// childOf is the first child of a process, 0 if it has none.
func childOf(pid int) (child int) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid)) // it has ended otherwise
	_, _ = fmt.Sscan(string(text), &child)
	return child
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
