package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// removeTime is how long the processes of a group may take to end once they have been killed.
const removeTime = 5 * time.Second

// RemoveFolder ends everything in the group of a folder and removes the folder. A missing folder is
// no error.
func RemoveFolder(path string) error {
	for began := time.Now(); ; {
		err := os.Remove(path)
		if err == nil || errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) || time.Since(began) > removeTime {
			return fmt.Errorf("remove a control group: %w", err)
		}
		kill(path)
		awaitEmpty(path, removeTime-time.Since(began))
	}
}

// kill ends everything in a group. Version 2 has a file for it since Linux 5.14, which also reaches
// processes that are forked at that moment. In version 1 the next round ends those.
func kill(path string) {
	if killFile(path) == nil {
		return
	}
	procs, _ := os.ReadFile(filepath.Join(path, "cgroup.procs")) // the next round says what is wrong
	for line := range strings.Lines(string(procs)) {
		if pid, err := strconv.Atoi(strings.TrimSpace(line)); err == nil && pid > 0 {
			_ = unix.Kill(pid, unix.SIGKILL) // a process that is gone is as good as killed
		}
	}
}

func killFile(path string) error {
	f, err := os.OpenFile(filepath.Join(path, "cgroup.kill"), os.O_WRONLY, 0) // never made
	if err != nil {
		return err
	}
	_, err = f.WriteString("1")
	return errors.Join(err, f.Close())
}

// awaitEmpty waits until a group has no process any more. Version 2 reports that by an exception on
// cgroup.events (cgroup-v2.rst, "Basic Operations"). Version 1 reports it only to a program that
// serves a whole hierarchy, so there awaitEmpty waits a millisecond.
func awaitEmpty(path string, most time.Duration) {
	f, err := os.Open(filepath.Join(path, "cgroup.events"))
	if err != nil {
		time.Sleep(time.Millisecond)
		return
	}
	defer func() { _ = f.Close() }() // only read
	events := make([]byte, 200)
	for began := time.Now(); time.Since(began) < most; {
		if n, _ := f.ReadAt(events, 0); !strings.Contains(string(events[:n]), "populated 1") {
			break
		}
		// The event may be for another change, so the caller then checks again.
		_, _ = unix.Poll([]unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLPRI}},
			int((most-time.Since(began)).Milliseconds())+1)
	}
}
