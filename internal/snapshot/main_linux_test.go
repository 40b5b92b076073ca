package snapshot

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// helperVariable makes this program a helper, which does what its value says.
const helperVariable = "EVALRUN_SNAPSHOT_HELPER"

// helper is what a helper does, in this order: it mounts an overlay in the mount namespace that it
// has, runs a script in it, and prints a picture of it; or it takes or restores a snapshot.
type helper struct {
	Lower, Upper, Work, Merged string
	Options, Script            string

	Store         *Store
	Take, Restore string
}

func TestMain(m *testing.M) {
	if orders := os.Getenv(helperVariable); orders != "" {
		var h helper
		err := json.Unmarshal([]byte(orders), &h)
		if err == nil {
			err = h.run()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// command is what starts the helper.
func (h helper) command(t testing.TB) *exec.Cmd {
	t.Helper()
	orders, err := json.Marshal(h)
	must(t, err)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), helperVariable+"="+string(orders))
	return cmd
}

func (h helper) run() error {
	if h.Take != "" {
		_, err := h.Store.Take(h.Take, "upper")
		return err
	}
	if h.Restore != "" {
		return h.Store.Restore(h.Restore)
	}
	if err := unix.Mount("overlay", h.Merged, "overlay", 0, fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s,%s", h.Lower, h.Upper, h.Work, h.Options)); err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	if h.Script != "" {
		cmd := exec.Command("/bin/sh", "-euc", h.Script)
		cmd.Dir, cmd.Stderr = h.Merged, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("script: %w", err)
		}
	}
	t := &printer{}
	for _, line := range picture(t, h.Merged, ".") {
		fmt.Println(line)
	}
	return t.err
}

// printer is the test of a helper.
type printer struct {
	testing.TB
	err error
}

func (p *printer) Helper() {}

func (p *printer) Fatal(args ...any) {
	fmt.Fprintln(os.Stderr, args...)
	os.Exit(1)
}

// inMountNamespace gives a command a mount namespace of its own, and one of users if it needs that
// for mounting.
func inMountNamespace(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags = unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
}
