package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/google/uuid"
)

// cpuPeriod is the period, in microseconds, in which the processes may use their part of the CPUs.
const cpuPeriod = 100_000

// files are the files that hold the limit of a controller. The first of them must exist.
func files(c Controller, version2 bool) []string {
	switch {
	case c == Memory && version2:
		return []string{"memory.max", "memory.swap.max"}
	case c == Memory:
		return []string{"memory.limit_in_bytes", "memory.memsw.limit_in_bytes"}
	case c == CPU && version2:
		return []string{"cpu.max"}
	case c == CPU:
		return []string{"cpu.cfs_quota_us"}
	}
	return []string{"pids.max"}
}

// values are written to these files.
func (l Limits) values(c Controller, version2 bool) []string {
	switch {
	case c == Memory && version2:
		return []string{strconv.FormatInt(l.Memory, 10), "0"}
	case c == Memory:
		return []string{strconv.FormatInt(l.Memory, 10), strconv.FormatInt(l.Memory, 10)}
	case c == CPU:
		quota := strconv.Itoa(max(1000, int(l.CPUs*cpuPeriod))) // the least that the system takes
		if version2 {
			quota += " " + strconv.Itoa(cpuPeriod)
		}
		return []string{quota}
	}
	return []string{strconv.Itoa(l.PIDs)}
}

// Group is a group of processes. A nil one has no limits.
type Group struct {
	dirs []dir
}

// dir is a folder of the group; it has one for each hierarchy.
type dir struct {
	place
	path string
}

// New makes a group for processes of an owner, with those limits that can be kept here; see
// [Missing]. It returns nil if none can.
func New(owner string, limits Limits) (*Group, error) {
	g := &Group{}
	name := prefix(owner) + uuid.NewString()
	for _, p := range here().found {
		var wanted []Controller
		for _, c := range limits.wanted() {
			if slices.Contains(p.controllers, c) {
				wanted = append(wanted, c)
			}
		}
		if wanted == nil {
			continue
		}
		d := dir{p, filepath.Join(p.dir, name)}
		if err := os.Mkdir(d.path, 0o755); err != nil {
			return nil, errors.Join(err, g.Remove())
		}
		g.dirs = append(g.dirs, d)
		for _, c := range wanted {
			if err := d.set(c, limits); err != nil {
				return nil, errors.Join(fmt.Errorf("limit %s: %w", c, err), g.Remove())
			}
		}
	}
	if g.dirs == nil {
		return nil, nil
	}
	return g, nil
}

func (d *dir) set(c Controller, limits Limits) error {
	values := limits.values(c, d.version2)
	for i, file := range files(c, d.version2) {
		err := os.WriteFile(filepath.Join(d.path, file), []byte(values[i]), 0)
		if errors.Is(err, os.ErrNotExist) && i > 0 { // a system that does not account for swap
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Start starts a command in the group, by start, which calls cmd.Start on the calling thread. The
// thread must be locked to its goroutine.
func (g *Group) Start(cmd *exec.Cmd, start func(*exec.Cmd) error) (err error) {
	if g == nil {
		return start(cmd)
	}
	for _, d := range g.dirs {
		if d.version2 {
			f, err := os.Open(d.path)
			if err != nil {
				return err
			}
			defer func() { _ = f.Close() }() // a folder
			if cmd.SysProcAttr == nil {
				cmd.SysProcAttr = &syscall.SysProcAttr{}
			}
			cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(f.Fd())
			continue
		}
		// A new process is in the groups of the thread that starts it. In version 1 a thread can be in
		// other groups than its process.
		if err := join(d.path); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, join(d.dir)) }()
	}
	return start(cmd)
}

// join puts the calling thread into a group of version 1.
func join(dir string) error { return os.WriteFile(filepath.Join(dir, "tasks"), []byte("0"), 0) }

// MemoryKills is how many processes the system has ended because the group had no memory left.
func (g *Group) MemoryKills() (n int) {
	if g == nil {
		return 0
	}
	for _, d := range g.dirs {
		file := "memory.oom_control"
		if d.version2 {
			file = "memory.events"
		}
		data, _ := os.ReadFile(filepath.Join(d.path, file)) // not there if it has no limit of memory
		for line := range strings.Lines(string(data)) {
			if fields := strings.Fields(line); len(fields) == 2 && fields[0] == "oom_kill" {
				kills, _ := strconv.Atoi(fields[1]) // the kernel writes numbers
				n += kills
			}
		}
	}
	return n
}

// Remove ends what is still in the group, and removes it.
func (g *Group) Remove() error {
	if g == nil {
		return nil
	}
	var err error
	for _, d := range g.dirs {
		err = errors.Join(err, RemoveFolder(d.path))
	}
	return err
}

// Sweep removes the groups of owners that are gone, and ends what is in them.
func Sweep(owners ...string) error {
	if len(owners) == 0 {
		return nil
	}
	var failed error
	for _, p := range here().found {
		// The process that made them may have been in another group than this one.
		err := filepath.WalkDir(p.mount, func(path string, e fs.DirEntry, err error) error {
			switch {
			case err != nil || !e.IsDir():
				return nil //nolint:nilerr // gone by now
			case slices.ContainsFunc(owners, func(owner string) bool { return strings.HasPrefix(e.Name(), prefix(owner)) }):
				failed = errors.Join(failed, RemoveFolder(path))
				return fs.SkipDir
			}
			return nil
		})
		failed = errors.Join(failed, err)
	}
	return failed
}
