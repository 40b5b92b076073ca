package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// place is a folder below which groups with some controllers can be made.
type place struct {
	dir         string
	mount       string // of the whole tree
	version2    bool
	controllers []Controller
}

// places are the folders in which groups are made here. missing says of each other controller why
// it cannot be used. They are found once, by making a group.
type places struct {
	found   []place
	missing map[Controller]error
}

var here = sync.OnceValue(func() places {
	h, err := readHierarchies("/proc/self/mountinfo", "/proc/self/cgroup")
	return findPlaces(h, err)
})

// Missing gives the reason for each controller that cannot be used here.
func Missing() map[Controller]error { return here().missing }

var all = []Controller{Memory, CPU, PIDs}

func findPlaces(found []hierarchy, err error) places {
	out := places{missing: map[Controller]error{}}
	for _, c := range all {
		out.missing[c] = fmt.Errorf("this system has no control groups for it")
		if err != nil {
			out.missing[c] = err
		}
	}
	for _, h := range found { // version 1 first: a controller that it has is not in version 2
		var wanted []Controller
		for _, c := range all {
			if out.missing[c] != nil && (h.version2 || slices.Contains(h.controllers, c)) {
				wanted = append(wanted, c)
			}
		}
		for _, dir := range h.candidates() {
			p, errs := h.try(dir, wanted)
			if len(p.controllers) == 0 {
				for c, err := range errs {
					out.missing[c] = err
				}
				continue
			}
			out.found = append(out.found, p)
			for _, c := range p.controllers {
				delete(out.missing, c)
			}
			break
		}
	}
	return out
}

// try makes a group in a folder and sees which of some controllers it has.
func (h hierarchy) try(dir string, wanted []Controller) (place, map[Controller]error) {
	p, failed := place{dir: dir, mount: h.mount, version2: h.version2}, map[Controller]error{}
	probe, err := os.MkdirTemp(dir, "evalrun-probe-")
	if err != nil {
		for _, c := range wanted {
			failed[c] = fmt.Errorf("no control group can be made: %w%s", err, hint(err))
		}
		return p, failed
	}
	defer func() { _ = os.Remove(probe) }() // nobody is in it
	for _, c := range wanted {
		if h.version2 {
			// It fails where processes are in the folder itself, unless that is the root.
			_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+string(c)), 0)
		}
		file := files(c, h.version2)[0]
		f, err := os.OpenFile(filepath.Join(probe, file), os.O_WRONLY, 0)
		if err == nil {
			_ = f.Close() // nothing was written
			err = writable(dir, probe, h.version2)
		}
		if errors.Is(err, os.ErrNotExist) {
			err = fmt.Errorf("control groups below %s have no %s controller", dir, c)
		}
		if err != nil {
			failed[c] = err
			continue
		}
		p.controllers = append(p.controllers, c)
	}
	return p, failed
}

// writable reports whether processes can be put into a new group below dir.
func writable(dir, probe string, version2 bool) error {
	files := []string{filepath.Join(probe, "cgroup.procs")}
	if version2 { // cgroups(7): to move a process, one must also be able to write to the group above both
		files = append(files, filepath.Join(dir, "cgroup.procs"))
	} else {
		files[0] = filepath.Join(probe, "tasks")
	}
	for _, file := range files {
		f, err := os.OpenFile(file, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_ = f.Close() // nothing was written
	}
	return nil
}

// hint tells a user who may not make groups what to do.
func hint(err error) string {
	if !errors.Is(err, os.ErrPermission) || os.Geteuid() == 0 {
		return ""
	}
	return "; with systemd, start evalrun by systemd-run --user --scope -p Delegate=yes"
}

// hierarchy is a mounted tree of groups.
type hierarchy struct {
	mount       string
	own         string // the group of this process, below mount
	version2    bool
	controllers []Controller // of version 1
}

// candidates are the folders in which a group may be made. In version 1 that is the group of this
// process. In version 2 a group with processes has none with controllers below it, so the search
// goes upwards.
func (h hierarchy) candidates() []string {
	own := filepath.Join(h.mount, h.own)
	if !h.version2 {
		return []string{own}
	}
	dirs := []string{own}
	for own != h.mount && strings.HasPrefix(own, h.mount) {
		own = filepath.Dir(own)
		dirs = append(dirs, own)
	}
	return dirs
}

// readHierarchies reads which hierarchies are mounted where, those of version 1 first.
func readHierarchies(mountinfo, cgroup string) ([]hierarchy, error) {
	mounts, err := os.ReadFile(mountinfo)
	if err != nil {
		return nil, err
	}
	groups, err := os.ReadFile(cgroup)
	if err != nil {
		return nil, err
	}
	var out []hierarchy
	for line := range strings.Lines(string(mounts)) {
		left, right, ok := strings.Cut(line, " - ")
		at, kind := strings.Fields(left), strings.Fields(right)
		if !ok || len(at) < 5 || len(kind) < 3 || kind[0] != "cgroup" && kind[0] != "cgroup2" {
			continue
		}
		h := hierarchy{mount: unescape(at[4]), version2: kind[0] == "cgroup2"}
		for option := range strings.SplitSeq(kind[2], ",") {
			if slices.Contains(all, Controller(option)) {
				h.controllers = append(h.controllers, Controller(option))
			}
		}
		own, ok := ownGroup(string(groups), h)
		if !ok || !h.version2 && len(h.controllers) == 0 {
			continue
		}
		// The mount may show a part of the tree only.
		root := unescape(at[3])
		if h.own, ok = strings.CutPrefix(own, strings.TrimSuffix(root, "/")); !ok {
			h.own = "/"
		}
		out = append(out, h)
	}
	slices.SortStableFunc(out, func(a, b hierarchy) int {
		switch {
		case a.version2 == b.version2:
			return 0
		case a.version2:
			return 1
		}
		return -1
	})
	return out, nil
}

// ownGroup is the group of this process in a hierarchy, from lines such as "4:memory:/a/b".
func ownGroup(groups string, h hierarchy) (string, bool) {
	for line := range strings.Lines(groups) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) != 3 {
			continue
		}
		names := strings.Split(parts[1], ",")
		if h.version2 && parts[0] == "0" ||
			!h.version2 && len(h.controllers) > 0 && slices.Contains(names, string(h.controllers[0])) {
			return parts[2], true
		}
	}
	return "", false
}

// unescape undoes the escapes of mountinfo for blanks and the like; see proc_pid_mountinfo(5).
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}
