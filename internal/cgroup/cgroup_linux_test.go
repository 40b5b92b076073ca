package cgroup

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/internal/testenv"
)

// need skips a test where a controller cannot be used.
func need(t *testing.T, controllers ...Controller) {
	t.Helper()
	for _, c := range controllers {
		if err := Missing()[c]; err != nil {
			t.Skipf("%s cannot be limited here: %v", c, err)
		}
	}
}

// limited runs a script in a group and returns what it printed, and the group, which is still there.
func limited(t *testing.T, limits Limits, script string) (string, *Group, error) {
	t.Helper()
	g, err := New(t.Name(), limits)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Remove(); err != nil {
			t.Error(err)
		}
		for _, d := range g.dirs {
			if _, err := os.Stat(d.path); err == nil {
				t.Errorf("%s is left", d.path)
			}
		}
	})
	out, err := os.Create(filepath.Join(t.TempDir(), "out")) // no pipe, which what is left running would hold open
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.Stdout, cmd.Stderr = out, out
	runtime.LockOSThread()
	err = g.Start(cmd, (*exec.Cmd).Start)
	runtime.UnlockOSThread()
	if err != nil {
		t.Fatal(err)
	}
	err = cmd.Wait()
	said, failed := os.ReadFile(out.Name())
	if failed != nil {
		t.Fatal(failed)
	}
	return string(said), g, err
}

// groups are the folders of an owner's groups.
func groups(t *testing.T, owner string) (out []string) {
	for _, p := range here().found {
		found, err := filepath.Glob(filepath.Join(p.dir, prefix(owner)+"*"))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, found...)
	}
	return out
}

func TestMemoryIsLimited(t *testing.T) {
	testenv.NeedSlow(t)
	need(t, Memory)
	const script = "head -c 200M /dev/zero | tail -c 190M | wc -c" // tail holds it all
	out, g, _ := limited(t, Limits{Memory: 64 << 20}, script)
	if strings.TrimSpace(out) == "199229440" || g.MemoryKills() == 0 {
		t.Errorf("with 64 MB: %q, %d processes were ended", out, g.MemoryKills())
	}
	if out, g, err := limited(t, Limits{Memory: 1 << 30}, script); err != nil || strings.TrimSpace(out) != "199229440" || g.MemoryKills() != 0 {
		t.Errorf("with 1 GB: %q, %v, %d processes were ended", out, err, g.MemoryKills())
	}
}

func TestNumberOfProcessesIsLimited(t *testing.T) {
	need(t, PIDs)
	const script = "for i in 1 2 3 4 5 6 7 8 9 10; do sleep 600 & done; wait"
	if out, _, err := limited(t, Limits{PIDs: 5}, script); err == nil || !strings.Contains(strings.ToLower(out), "fork") {
		t.Errorf("%q, %v", out, err)
	}
}

func TestCPUTimeIsLimited(t *testing.T) {
	testenv.NeedSlow(t)
	need(t, CPU)
	began := time.Now()
	_, g, err := limited(t, Limits{CPUs: 0.1}, `i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done`)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range g.dirs {
		stat, err := os.ReadFile(filepath.Join(d.path, "cpu.stat"))
		if err != nil || strings.Contains(string(stat), "nr_throttled 0\n") || !strings.Contains(string(stat), "nr_throttled ") {
			t.Errorf("%s, %v", stat, err)
		}
	}
	t.Log(time.Since(began))
}

// What a killed evalrun has left is found by the owner's name and removed, with what runs in it.
func TestSweepRemovesGroupsOfTheirOwners(t *testing.T) {
	need(t, PIDs)
	owner, other := t.Name()+"/gone", t.Name()+"/alive"
	g, err := New(owner, Limits{PIDs: 10})
	if err != nil {
		t.Fatal(err)
	}
	alive, err := New(other, Limits{PIDs: 10})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = alive.Remove() }()
	cmd := exec.Command("sleep", "600")
	runtime.LockOSThread()
	err = g.Start(cmd, (*exec.Cmd).Start)
	runtime.UnlockOSThread()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	if err := Sweep(owner); err != nil {
		t.Error(err)
	}
	if err := <-ended; err == nil || cmd.ProcessState.Sys().(interface{ Signal() unix.Signal }).Signal() != unix.SIGKILL {
		t.Errorf("the process: %v", err)
	}
	if left := groups(t, owner); left != nil {
		t.Errorf("%v is left", left)
	}
	if groups(t, other) == nil {
		t.Error("the group of another owner is gone")
	}
}

// Version 2 as this machine has it, whether it has controllers or not: a process is started in its
// group, and what it has started there ends with it, told by the system and not by asking again.
func TestVersion2EndsWhatIsInAGroup(t *testing.T) {
	g := &Group{dirs: []dir{groupOfVersion2(t)}}
	path := g.dirs[0].path
	ready, begun, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer ready.Close()
	cmd := exec.Command("/bin/sh", "-c", "setsid sleep 600 >/dev/null & setsid sleep 600 >/dev/null & echo; wait")
	cmd.Stdout = begun
	runtime.LockOSThread()
	err = g.Start(cmd, (*exec.Cmd).Start)
	runtime.UnlockOSThread()
	if err != nil {
		t.Fatal(err)
	}
	_ = begun.Close() // the process has it
	if _, err := ready.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	procs, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
	if pids := strings.Fields(string(procs)); err != nil || len(pids) != 3 || !slices.Contains(pids, strconv.Itoa(cmd.Process.Pid)) {
		t.Errorf("in the group are %v, %v", pids, err)
	}
	kill(path)
	awaitEmpty(path, time.Minute)
	if events, err := os.ReadFile(filepath.Join(path, "cgroup.events")); err != nil || !strings.Contains(string(events), "populated 0") {
		t.Errorf("after the wait: %s, %v", events, err)
	}
	if err := g.Remove(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Errorf("%s is left", path)
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.Sys().(interface{ Signal() unix.Signal }).Signal() != unix.SIGKILL {
		t.Errorf("the process: %v", err)
	}
}

// groupOfVersion2 makes a group of version 2. The test is skipped where none can be made.
func groupOfVersion2(t *testing.T) dir {
	t.Helper()
	found, err := readHierarchies("/proc/self/mountinfo", "/proc/self/cgroup")
	if err != nil {
		t.Skip("control groups of version 2:", err)
	}
	for _, h := range found {
		if !h.version2 {
			continue
		}
		for _, at := range h.candidates() {
			p, _ := h.try(at, nil)
			path, err := os.MkdirTemp(at, "evalrun-test-")
			if err != nil {
				t.Log(err)
				continue
			}
			d := dir{p, path}
			t.Cleanup(func() {
				if err := RemoveFolder(path); err != nil {
					t.Error(err)
				}
			})
			return d
		}
	}
	t.Skip("control groups of version 2: none can be made here")
	return dir{}
}

// The hierarchies of systems that are not this one.
func TestReadHierarchies(t *testing.T) {
	for name, c := range map[string]struct {
		mounts, groups string
		want           []hierarchy
	}{
		"version 2, systemd": {
			"30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n", "0::/user.slice/user-1000.slice/user@1000.service/app.slice/run.scope\n",
			[]hierarchy{{mount: "/sys/fs/cgroup", own: "/user.slice/user-1000.slice/user@1000.service/app.slice/run.scope", version2: true}},
		},
		"hybrid": {
			"41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n37 31 0:34 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n",
			"9:name=systemd:/\n4:memory:/a/b\n3:cpu,cpuacct:/\n0::/\n",
			[]hierarchy{
				{mount: "/sys/fs/cgroup/memory", own: "/a/b", controllers: []Controller{Memory}}, {mount: "/sys/fs/cgroup/cpu,cpuacct", own: "/", controllers: []Controller{CPU}},
				{mount: "/sys/fs/cgroup/unified", own: "/", version2: true},
			},
		},
		"in a container of version 1": {
			"35 31 0:32 /docker/x /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n", "4:memory:/docker/x\n",
			[]hierarchy{{mount: "/sys/fs/cgroup/memory", own: "", controllers: []Controller{Memory}}},
		},
		"none": {"22 1 0:21 / /proc rw - proc proc rw\n", "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, content := range map[string]string{"mounts": c.mounts, "groups": c.groups} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got, err := readHierarchies(filepath.Join(dir, "mounts"), filepath.Join(dir, "groups"))
			if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(hierarchy{})); err != nil || diff != "" {
				t.Errorf("%v\n%s", err, diff)
			}
		})
	}
	h := hierarchy{mount: "/sys/fs/cgroup", own: "/user.slice/x.scope", version2: true}
	if got, want := h.candidates(), []string{"/sys/fs/cgroup/user.slice/x.scope", "/sys/fs/cgroup/user.slice", "/sys/fs/cgroup"}; !slices.Equal(got, want) {
		t.Errorf("groups are looked for in %v", got)
	}
}
