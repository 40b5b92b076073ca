package sandbox

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// hold is the life of the first process of a space. It starts the inits that it is asked for, and
// reaps orphans. When evalrun is done with the space, or is gone, hold ends, and the system ends
// all other processes.
func hold() int {
	closeOnExec()
	guardInit()
	c, err := net.Dial("unixpacket", InsideLine)
	if err != nil {
		fmt.Fprintln(os.Stderr, "evalrun", holdCommand+": this is for evalrun's own use:", err)
		return initFailed
	}
	line := c.(*net.UnixConn)
	started := newChildren()
	for {
		order, files, err := receive(line)
		if err != nil {
			return 0
		}
		go started.attendVisit(order, files)
	}
}

// receive waits for the next order. Its last file is the socket for the status.
func receive(line *net.UnixConn) (order visitOrder, files []*os.File, err error) {
	message, control := make([]byte, 1<<20), make([]byte, unix.CmsgSpace(4*maxVisitFiles))
	n, c, _, _, err := line.ReadMsgUnix(message, control)
	if err != nil {
		return order, nil, err
	}
	parts, err := unix.ParseSocketControlMessage(control[:c])
	if err != nil {
		return order, nil, err
	}
	for i := range parts {
		fds, err := unix.ParseUnixRights(&parts[i])
		if err != nil {
			return order, nil, err
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "given"))
		}
	}
	if len(files) < 4 {
		closeAll(files)
		return order, nil, fmt.Errorf("an order has %d files", len(files)) // also the end, which is empty
	}
	return order, files, json.Unmarshal(message[:n], &order)
}

// attendVisit starts an init and reports its status. If the process that waits for it is gone
// first, the init is killed, and everything else unless it shares the space.
func (c *children) attendVisit(order visitOrder, files []*os.File) {
	last := len(files) - 1
	status := files[last]
	cmd := &exec.Cmd{Path: InsideExecutable, Args: []string{InsideExecutable, initCommand}, Dir: "/", Env: order.Env,
		Stdin: files[0], Stdout: files[1], Stderr: files[2],
		ExtraFiles: files[3:last], SysProcAttr: &syscall.SysProcAttr{Setsid: true}}
	init, err := c.start(cmd)
	closeAll(files[:last])
	defer func() { _ = status.Close() }()
	if err != nil {
		_, _ = status.Write([]byte{initFailed})
		return
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = status.Read(make([]byte, 1)) // nothing is ever written there
	}()
	select {
	case <-init.ended:
		_, _ = status.Write([]byte{exitStatus(init.status)}) // nobody may wait for it any more
		return
	case <-gone:
	}
	_ = unix.Kill(-init.pid, unix.SIGKILL)
	if !order.Shared {
		killOthers()
	}
}

// killOthers kills every process of the space except the first one and this one.
func killOthers() { _ = unix.Kill(-1, unix.SIGKILL) }

// exitStatus is the status with which a shell would report the end of a process.
func exitStatus(status syscall.WaitStatus) byte {
	if status.Signaled() {
		return 128 + byte(status.Signal())
	}
	return byte(status.ExitStatus())
}
