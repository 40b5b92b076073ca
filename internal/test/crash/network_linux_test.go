package crash

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/internal/testenv"
)

// netns is the variable that makes it a failure if there are no network namespaces here.
const netns = "EVALRUN_NETNS"

// network is a switch to which hosts are connected. Each of them is a network namespace, and so is the
// switch. They end with the test, also if that is killed.
type network struct {
	t      *testing.T
	middle *namespace
	hosts  int
}

// host is a machine of a network, as far as its network goes: its processes are started with in.
type host struct {
	*namespace
	name, addr string
	of         *network
}

// newNetwork makes a network without hosts. The test is skipped where there can be none.
func newNetwork(t *testing.T) *network {
	t.Helper()
	testenv.Need(t, netns, lacksNetwork())
	n := &network{t: t}
	var err error
	if n.middle, err = newNamespace(t); err != nil {
		testenv.Need(t, netns, fmt.Errorf("network namespaces cannot be made: %w", err))
	}
	if err := n.middle.ip("link add br0 type bridge"); err != nil {
		testenv.Need(t, netns, fmt.Errorf("a bridge between network namespaces cannot be made: %w", err))
	}
	n.must(n.middle.ip("link set br0 up"))
	return n
}

func lacksNetwork() error {
	if os.Getuid() != 0 {
		return errors.New("network namespaces are made by root alone")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		return fmt.Errorf("network namespaces are connected with the program ip, of Debian's package iproute2: %w", err)
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if _, err := exec.LookPath("initdb"); err != nil && len(found) == 0 {
		return errors.New("there is no PostgreSQL server here, of Debian's package postgresql")
	}
	return nil
}

func (n *network) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

// add adds a host.
func (n *network) add(name string) *host {
	n.t.Helper()
	n.hosts++
	space, err := newNamespace(n.t)
	n.must(err)
	h := &host{space, name, fmt.Sprintf("10.77.0.%d", n.hosts), n}
	n.must(n.middle.ip(fmt.Sprintf("link add %s type veth peer name eth0 netns %d", name, space.holder)))
	n.must(n.middle.ip("link set " + name + " master br0 up"))
	n.must(h.ip("link set lo up"))
	n.must(h.ip("addr add " + h.addr + "/24 dev eth0"))
	n.must(h.ip("link set eth0 up"))
	return h
}

// cut cuts the host off: nobody is told, its packets get lost. heal undoes it.
func (h *host) cut()  { h.of.must(h.of.middle.ip("link set " + h.name + " down")) }
func (h *host) heal() { h.of.must(h.of.middle.ip("link set " + h.name + " up")) }

// listen listens on a port of the host.
func (h *host) listen() (l net.Listener) {
	h.of.t.Helper()
	h.of.must(h.in(func() (err error) {
		l, err = net.Listen("tcp", h.addr+":0")
		return err
	}))
	return l
}

// namespace is a network namespace. A process holds it, which ends with the test.
type namespace struct {
	file   *os.File
	holder int
}

func newNamespace(t *testing.T) (*namespace, error) {
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe() // it is closed at the latest when the test ends, and cat ends then
	if err != nil {
		return nil, err
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	file, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", cmd.Process.Pid))
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
		if file != nil {
			_ = file.Close()
		}
	})
	return &namespace{file, cmd.Process.Pid}, err
}

// in calls a function in the namespace, where what it starts and opens stays.
func (n *namespace) in(f func() error) error {
	runtime.LockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer home.Close()
	if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
		return err
	}
	err = f()
	if failed := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); failed != nil {
		return failed // the thread ends with its goroutine
	}
	runtime.UnlockOSThread()
	return err
}

// ip runs the program ip in the namespace.
func (n *namespace) ip(args string) error {
	cmd := exec.Command("ip", strings.Fields(args)...)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	err := n.in(cmd.Start)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", args, err, out.String())
	}
	return nil
}
