package sandbox

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
)

// children starts the processes of an init. It reaps them, and everything else that becomes a child
// of process 1.
type children struct {
	mu      sync.Mutex
	running map[int]*child
	over    bool // nothing is started any more
}

// child is a process that an init has started. Its status may be read when ended is closed.
type child struct {
	pid    int
	leader bool // of a process group
	ended  chan struct{}
	status syscall.WaitStatus
}

func newChildren() *children {
	c := &children{running: map[int]*child{}}
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, syscall.SIGCHLD)
	go func() {
		for range changed {
			for c.reap() {
			}
		}
	}()
	return c
}

// start starts a process. Its files must be files, so that nothing else has to wait for it.
func (c *children) start(cmd *exec.Cmd) (*child, error) {
	c.mu.Lock() // the process is not reaped before it is known
	defer c.mu.Unlock()
	if c.over {
		return nil, errTold
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	started := &child{
		pid: cmd.Process.Pid, leader: cmd.SysProcAttr != nil && cmd.SysProcAttr.Setpgid, ended: make(chan struct{}),
	}
	c.running[started.pid] = started
	_ = cmd.Process.Release() // cannot fail for a process that was just started
	return started, nil
}

// reap reaps one process that has ended, if there is one.
func (c *children) reap() bool {
	var status syscall.WaitStatus
	pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
	if errors.Is(err, syscall.EINTR) {
		return true
	}
	if pid <= 0 {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if ended := c.running[pid]; ended != nil {
		delete(c.running, pid)
		ended.status = status
		close(ended.ended)
	}
	return true
}

// killGroups kills the groups other than the init's own, for good: nothing is started after it.
func (c *children) killGroups() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	for _, child := range c.running {
		if child.leader {
			signalGroup(child.pid, syscall.SIGKILL)
		}
	}
}
