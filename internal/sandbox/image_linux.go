package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// imageFiles lays out a space over the root of an image.
func (s *Config) imageFiles(executable string) (layout, error) {
	l := layout{"/": {writable, unmounted}, insideRun: {kind: fresh}}
	if err := l.addVisible(s.Visible); err != nil {
		return nil, err
	}
	return l, l.addOwn(s, executable)
}

// network are the files of /etc with which an image finds its way in the network of this machine.
var network = []string{"resolv.conf", "hosts", "hostname"}

// wrapImage changes cmd, which is an init, to run in a space over the root of an image. It starts
// evalrun in a mount namespace of its own, which mounts the root and then becomes bwrap. So
// everything ends with the space, however evalrun ends.
func (s *Config) wrapImage(cmd *exec.Cmd, bwrap string) error {
	executable := cmd.Path
	l, err := s.imageFiles(executable)
	if err != nil {
		return err
	}
	if err := l.makeRoom(); err != nil {
		return fmt.Errorf("make room in the space: %w", err)
	}
	filter, err := addFilter(cmd)
	if err != nil {
		return err
	}
	orders := rootOrders{Root: *s.Root, InUser: os.Geteuid() != 0, Rooms: l.rooms()[unmounted], Program: bwrap}
	orders.Args = slices.Concat([]string{bwrap}, s.imageNamespaces(), filter, l.args())
	if orders.InUser {
		orders.User = s.User
	}
	for _, name := range network {
		content, err := os.ReadFile(filepath.Join("/etc", name))
		if err != nil {
			continue // this machine has none either
		}
		f, err := memoryFile(name, string(content))
		if err != nil {
			return err
		}
		orders.Args = append(orders.Args, "--perms", "0644", "--bind-data", strconv.Itoa(3+len(cmd.ExtraFiles)), "/etc/"+name)
		orders.Rooms = append(orders.Rooms, room{"etc/" + name, roomFile})
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
	}
	orders.Args = append(orders.Args, "--chdir", "/", "--", InsideExecutable, initCommand)
	return orders.give(cmd, executable)
}

// imageNamespaces are the options that say what is shared with this system. Root stays root, and
// the init switches to the users of the image. Everybody else is one user in a namespace.
func (s *Config) imageNamespaces() []string {
	root := *s
	root.User = "root"
	args := root.namespaces()
	if os.Geteuid() == 0 {
		return args
	}
	for i, arg := range args[:len(args)-1] {
		switch arg {
		case "--uid":
			args[i+1] = userMark
		case "--gid":
			args[i+1] = groupMark
		}
	}
	return append(args, "--cap-drop", "ALL", capabilitiesMark) // by default bwrap would leave all of them
}

// give turns cmd into the command that follows the orders.
func (o *rootOrders) give(cmd *exec.Cmd, executable string) error {
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	f, err := memoryFile("root", string(text))
	if err != nil {
		return err
	}
	cmd.ExtraFiles = append(cmd.ExtraFiles, f)
	cmd.Path, cmd.Args = executable, []string{executable, rootCommand, strconv.Itoa(2 + len(cmd.ExtraFiles))}
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
	if o.InUser {
		cmd.SysProcAttr.Cloneflags = unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	return nil
}

// ImageAvailable returns the reason why a space over the root of an image cannot be made here, and
// what to do about it. It returns nil if one can. It tries once.
func ImageAvailable() error { return imageAvailable() }

var imageAvailable = sync.OnceValue(func() error {
	if err := Available(); err != nil {
		return err
	}
	own, err := os.Executable()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, own)
	cmd.Env = []string{}
	o := rootOrders{InUser: os.Geteuid() != 0}
	if err := o.give(cmd, own); err != nil {
		return err
	}
	defer closeAll(cmd.ExtraFiles)
	if out, err := cmd.CombinedOutput(); err != nil {
		hint := ""
		if o.InUser {
			hint = userNamespaces()
		}
		return fmt.Errorf("isolation \"image\" does not work here: an overlay cannot be mounted: %w: %s%s",
			err, bytes.TrimSpace(out), hint)
	}
	return nil
})

// Open gives the mounted root to evalrun itself until close is called: a folder, by its path in
// /proc, that shows the image and its changes as one. No process may be in a space with this root
// meanwhile.
func (r *Root) Open(executable string) (path string, closeRoot func(), err error) {
	if err := r.check(); err != nil {
		return "", nil, err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", nil, fmt.Errorf("open the root: %w", err)
	}
	ours := os.NewFile(uintptr(pair[0]), "root")
	defer func() { _ = ours.Close() }()
	cmd := &exec.Cmd{Env: []string{}, ExtraFiles: []*os.File{os.NewFile(uintptr(pair[1]), "root")}}
	var said bytes.Buffer
	cmd.Stderr = &said
	o := rootOrders{Root: *r, InUser: os.Geteuid() != 0}
	err = o.give(cmd, executable)
	if err == nil {
		err = startIsolated(cmd, nil)
	}
	closeAll(cmd.ExtraFiles)
	if err != nil {
		return "", nil, fmt.Errorf("open the root: %w", err)
	}
	fd, received := receiveFile(pair[0])
	if err := errors.Join(received, cmd.Wait()); err != nil {
		return "", nil, fmt.Errorf("open the root: %w: %s", err, bytes.TrimSpace(said.Bytes()))
	}
	folder := os.NewFile(uintptr(fd), "root")
	return fmt.Sprintf("/proc/self/fd/%d", fd), func() { _ = folder.Close() }, nil
}

// receiveFile takes a file from a socket.
func receiveFile(socket int) (int, error) {
	control := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(socket, make([]byte, 1), control, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return 0, err
	}
	messages, err := unix.ParseSocketControlMessage(control[:n])
	if err != nil || len(messages) != 1 {
		return 0, errors.Join(errors.New("nothing came"), err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return 0, errors.Join(errors.New("nothing came"), err)
	}
	return fds[0], nil
}
