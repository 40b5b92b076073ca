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
	"slices"
	"strconv"
	"strings"
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

// DockerForm says what a daemon shares with this machine.
type DockerForm string

// The forms of a daemon.
const (
	// DockerRemote is in namespaces of its own: no folder in which tests work is there, and its network is not this
	// machine's and leads nowhere. It stands for a daemon on another machine.
	DockerRemote DockerForm = "remote"
	// DockerOnline is DockerRemote, with a way to the internet. It needs slirp4netns.
	DockerOnline DockerForm = "online"
	// DockerLocal shares this machine's files, and a bridge on its network.
	DockerLocal DockerForm = "local"
	// DockerBare is DockerLocal without a bridge: containers have this machine's network, or none.
	DockerBare DockerForm = "bare"
)

// dockerForm is the variable that names the form of the daemon of tests for which any will do.
const dockerForm = "EVALRUN_DOCKER_FORM"

// AnyDocker is the form of the daemon for tests that hold with others than the usual one, too.
func AnyDocker(usual DockerForm) DockerForm { return cmp.Or(DockerForm(os.Getenv(dockerForm)), usual) }

// RemoteDocker is a Docker daemon of the tests' own, which shares with this machine what its form says.
type RemoteDocker struct {
	// Host is its address, as in DOCKER_HOST.
	Host   string
	dir    string
	form   DockerForm
	bridge string // of this machine, empty unless the form has one
	log    *os.File
	cmd    *exec.Cmd
	online *exec.Cmd // the way to the internet, nil if there is none
	held   *os.File  // which ends it
}

// dockerDir is the variable that names a folder for the daemon's own. CI ends by the file unshare.pid
// there what tests could not end.
const dockerDir = "EVALRUN_DOCKER_DIR"

// daemonScript is process 1 of the daemon's namespaces, so that its end ends all of them. A daemon that was ended
// is started anew. If it is remote its folder stays the only one that both sides see, for its socket.
const daemonScript = `export TMPDIR=/tmp
if [ "$1" = remote ]; then
	mount -t tmpfs none /tmp
	for d in /root /home /work /srv /opt; do [ ! -d $d ] || mount -t tmpfs none $d; done
	ip link set lo up
fi
shift
for n in $(seq 1000); do
	rm -f "$0/pid"
	dockerd "$@" --ip6tables=false --storage-driver=overlay2 --data-root "$0/data" --exec-root "$0/exec" --pidfile "$0/pid" --host "unix://$0/s" || [ $? -gt 128 ]
done`

// StartDocker starts a daemon. The caller ends it, on every way out.
func StartDocker(form DockerForm) (*RemoteDocker, error) {
	parent := cmp.Or(os.Getenv(dockerDir), "/var/lib") // tests work elsewhere, and an overlay needs a real disk
	dir, err := os.MkdirTemp(parent, "evalrun-docker-")
	if err != nil {
		return nil, err
	}
	d := &RemoteDocker{Host: "unix://" + dir + "/s", dir: dir, form: form}
	if d.log, err = os.Create(filepath.Join(dir, "log")); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	own, flags, err := d.shares()
	if err != nil {
		return nil, errors.Join(err, d.log.Close(), os.RemoveAll(dir))
	}
	args := slices.Concat([]string{"--mount", "--pid", "--fork", "--kill-child", "--mount-proc"}, own, []string{"sh", "-ec", daemonScript, dir}, flags)
	d.cmd = exec.Command("unshare", args...)
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
	if form == DockerOnline {
		if err := d.connect(); err != nil {
			return nil, errors.Join(err, d.End())
		}
	}
	return d, nil
}

// shares makes what the daemon shares with this machine. It returns the further namespaces of its own, and the
// arguments of the script.
func (d *RemoteDocker) shares() (own, args []string, err error) {
	switch d.form {
	case DockerRemote:
		return []string{"--net"}, []string{"remote", "--iptables=false"}, nil
	case DockerOnline: // its packets leave under the address of its namespace
		return []string{"--net"}, []string{"remote", "--iptables=true"}, nil
	case DockerBare:
		return nil, []string{"local", "--iptables=false", "--bridge=none"}, nil
	case DockerLocal:
		n := os.Getpid()
		d.bridge = fmt.Sprintf("evalrun%d", n)
		script := fmt.Sprintf("ip link add %[1]s type bridge; ip addr add 198.18.%[2]d.1/24 dev %[1]s; ip link set %[1]s up", d.bridge, n%256) // of RFC 2544
		if out, err := exec.Command("sh", "-ec", script).CombinedOutput(); err != nil {
			return nil, nil, fmt.Errorf("a bridge for the Docker daemon: %w: %s", err, out)
		}
		return nil, []string{"local", "--iptables=false", "--bridge=" + d.bridge}, nil
	}
	return nil, nil, fmt.Errorf("%s is %q, and there are %s, %s, %s and %s", dockerForm, d.form, DockerRemote, DockerOnline, DockerLocal, DockerBare)
}

// connect gives the daemon's network a way to the internet, which ends with this process.
func (d *RemoteDocker) connect() error {
	in, out, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	pid := childOf(d.cmd.Process.Pid)
	d.held = out
	d.online = exec.Command("slirp4netns", "--configure", "--disable-host-loopback", "--exit-fd=3", strconv.Itoa(pid), "tap0")
	d.online.Stdout, d.online.Stderr, d.online.ExtraFiles = d.log, d.log, []*os.File{in}
	if err := d.online.Start(); err != nil {
		d.online = nil
		return fmt.Errorf("a way to the internet (Debian's package slirp4netns): %w", err)
	}
	if !Eventually(func() bool {
		routes, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/route", pid))
		return err == nil && bytes.Contains(routes, []byte("tap0\t00000000"))
	}) {
		return fmt.Errorf("the Docker daemon has no way to the internet: %s", d.Log())
	}
	return nil
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
	return d.send(ctx, "/images/create?fromSrc=-&repo="+name, f)
}

// Load gives the daemon an image of podman's under all its names.
func (d *RemoteDocker) Load(ctx context.Context, name string) error {
	names, err := exec.CommandContext(ctx, "podman", "image", "inspect", "--format", `{{join .RepoTags " "}}`, name).Output()
	if err != nil {
		return fmt.Errorf("podman's image %s: %w", name, err)
	}
	save := exec.CommandContext(ctx, "podman", slices.Concat([]string{"save", "--format", "docker-archive"}, strings.Fields(string(names)))...)
	archive, err := save.StdoutPipe()
	if err == nil {
		err = save.Start()
	}
	if err != nil {
		return err
	}
	return errors.Join(d.send(ctx, "/images/load?quiet=1", archive), save.Wait())
}

// send sends an archive to the daemon's API.
func (d *RemoteDocker) send(ctx context.Context, path string, archive io.Reader) error {
	over := d.over()
	defer over.CloseIdleConnections()
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://docker"+path, archive)
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
		err = fmt.Errorf("%s: %s", path, said)
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
	var err error
	if d.held != nil {
		err = d.held.Close()
	}
	if d.online != nil {
		_ = d.online.Wait()
	}
	if d.bridge != "" {
		err = errors.Join(err, exec.Command("ip", "link", "del", d.bridge).Run())
	}
	err = errors.Join(err, d.log.Close())
	if !Eventually(func() bool { return os.RemoveAll(d.dir) == nil }) { // the kernel may still unmount
		err = errors.Join(err, os.RemoveAll(d.dir))
	}
	return err
}
