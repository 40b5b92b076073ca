package snapshot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/backend"
	"github.com/evalrun/evalrun/internal/store/rules"
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
	In            *blockPlace // if not nil, where it shares what it takes, and gets As from
	As            Shared
}

// helped is what a helper says of a snapshot: how many bytes it has stored, and the most memory that it had.
type helped struct {
	Stored, Peak int64
	As           Shared
}

// blockPlace is a store, as package backend and [store.Options] call its parts.
type blockPlace struct{ Store, Files, Blobs string }

// open opens the store.
func (p *blockPlace) open() (*rules.Store, error) {
	return backend.Open(p.Store, store.Options{Files: p.Files, Blobs: p.Blobs})
}

// countedBlocks counts what is stored.
type countedBlocks struct {
	*rules.Store
	stored atomic.Int64
}

// PutBlocks implements Blocks.
func (c *countedBlocks) PutBlocks(ctx context.Context, blocks []store.Block) error {
	for _, b := range blocks {
		c.stored.Add(int64(len(b.Data)))
	}
	return c.Store.PutBlocks(ctx, blocks)
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
	if h.Take != "" || h.Restore != "" {
		return h.snapshot(context.Background())
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

func (h helper) snapshot(ctx context.Context) (err error) {
	var said helped
	defer func() {
		if err == nil {
			said.Peak, err = peakMemory()
		}
		err = errors.Join(err, json.NewEncoder(os.Stdout).Encode(said))
	}()
	blocks := &countedBlocks{}
	if h.In != nil {
		opened, err := h.In.open()
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, opened.Close()) }()
		blocks.Store = opened
	}
	if h.Restore != "" {
		if h.In != nil {
			err = h.Store.Fetch(ctx, h.Restore, h.As, blocks, []string{"upper"})
		}
		return errors.Join(err, h.Store.Restore(h.Restore))
	}
	report, err := h.Store.Take(h.Take, "upper")
	if err != nil {
		return err
	}
	said.Stored = report.Stored
	if h.In != nil {
		said.As, _, err = h.Store.Share(ctx, h.Take, blocks)
		said.Stored = blocks.stored.Load()
	}
	return err
}

// peakMemory is the most memory that this process had so far, in bytes. What the system says of a child that has
// ended counts that of its parent, too.
func peakMemory() (n int64, err error) {
	status, err := os.ReadFile("/proc/self/status")
	if err == nil {
		_, after, _ := strings.Cut(string(status), "VmHWM:")
		_, err = fmt.Sscan(after, &n)
	}
	return n << 10, err
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
