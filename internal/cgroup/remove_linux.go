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

// removeTime is how long the processes of a group may take to be gone, once they have been killed.
const removeTime = 5 * time.Second

// RemoveFolder ends what is in the group of a folder, and removes it. One that is not there is fine.
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

// kill ends everything in a group. Version 2 has a file for it since Linux 5.14, which also gets
// what is forked at that moment; in version 1 the next round does.
func kill(path string) {
	if killFile(path) == nil {
		return
	}
	procs, _ := os.ReadFile(filepath.Join(path, "cgroup.procs")) // the next round says what is wrong
	for line := range strings.Lines(string(procs)) {
		if pid, err := strconv.Atoi(strings.TrimSpace(line)); err == nil && pid > 0 {
			_ = unix.Kill(pid, unix.SIGKILL) // gone is as good as killed
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

// awaitEmpty waits until no process is in a group any more, where the system tells: version 2 does,
// by an exception on cgroup.events (cgroup-v2.rst, "Basic Operations"). Version 1 tells only a program
// that a whole hierarchy has one of, so there it waits a millisecond.
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
		// It is not always of this change that it tells.
		// then it asks again
		_, _ = unix.Poll([]unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLPRI}},
			int((most-time.Since(began)).Milliseconds())+1)
	}
}
