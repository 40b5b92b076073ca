package sandbox

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func init() {
	// hostile tries what no process in a space may do, and prints the errors. Its arguments are a
	// key's description.
	roles["hostile"] = func(args []string) {
		call := func(name string, number uintptr, a ...uintptr) {
			for len(a) < 6 {
				a = append(a, 0)
			}
			_, _, errno := unix.RawSyscall6(number, a[0], a[1], a[2], a[3], a[4], a[5])
			fmt.Println(name+":", cmp.Or(unix.ErrnoName(errno), "success"))
		}
		tried := func(name string, err error) {
			var errno syscall.Errno
			_ = errors.As(err, &errno) // else it is no failure
			fmt.Println(name+":", cmp.Or(unix.ErrnoName(errno), "success"))
		}
		key := args[0]
		for name, ring := range map[string]int{"session": unix.KEY_SPEC_SESSION_KEYRING, "user": unix.KEY_SPEC_USER_KEYRING, "user session": unix.KEY_SPEC_USER_SESSION_KEYRING} {
			_, err := unix.KeyctlSearch(ring, "user", key, 0)
			tried("key in the "+name+" keyring", err)
		}
		_, err := unix.AddKey("user", key, []byte(key)[:1], unix.KEY_SPEC_USER_KEYRING)
		tried("add_key", err)
		_, err = unix.RequestKey("user", key, "", 0)
		tried("request_key", err)
		tried("mount", unix.Mount("none", "/tmp", "tmpfs", 0, ""))
		tried("umount2", unix.Unmount("/tmp", unix.MNT_DETACH))
		call("pivot_root", unix.SYS_PIVOT_ROOT)
		tried("chroot", unix.Chroot("/tmp"))
		_, err = unix.OpenTree(-1, "/etc", 0)
		tried("open_tree", err)
		call("fsopen", unix.SYS_FSOPEN)
		call("setns", unix.SYS_SETNS, ^uintptr(0))
		call("unshare", unix.SYS_UNSHARE, unix.CLONE_NEWUSER|unix.CLONE_NEWNS)
		call("clone", unix.SYS_CLONE, unix.CLONE_NEWUSER|uintptr(unix.SIGCHLD)|unix.CLONE_SIGHAND) // EINVAL without the filter
		call("open_by_handle_at", unix.SYS_OPEN_BY_HANDLE_AT, ^uintptr(0))
		call("bpf", unix.SYS_BPF, 99)
		call("perf_event_open", unix.SYS_PERF_EVENT_OPEN)
		call("userfaultfd", unix.SYS_USERFAULTFD, ^uintptr(0))
		call("io_uring_setup", unix.SYS_IO_URING_SETUP)
		call("init_module", unix.SYS_INIT_MODULE)
		call("kexec_load", unix.SYS_KEXEC_LOAD)
		call("personality", unix.SYS_PERSONALITY, 0x0040000)
		call("socket of vsock", unix.SYS_SOCKET, unix.AF_VSOCK, unix.SOCK_STREAM)
		call("ptrace of the init", unix.SYS_PTRACE, unix.PTRACE_SEIZE, 1)
		for _, file := range []string{"mem", "fd/1", "fd/3", "fd/4", "environ"} {
			f, err := os.OpenFile("/proc/1/"+file, os.O_RDWR, 0)
			if err == nil {
				_ = f.Close()
				fmt.Println(file+" of the init:", "open")
			}
		}
		fmt.Println("tried")
	}
	// session prints which session keyring it has.
	roles["session"] = func([]string) { fmt.Print(must(unix.KeyctlGetKeyringID(unix.KEY_SPEC_SESSION_KEYRING, false))) }
	// starter does too, and starts a session in the way of a space.
	roles["starter"] = func([]string) {
		roles["session"](nil)
		fmt.Print(" ")
		cmd := role("session")
		cmd.Stdout = os.Stdout
		check(startIsolated(cmd, nil))
		check(cmd.Wait())
	}
	// usual does what programs do in a container, and prints the errors.
	roles["usual"] = func([]string) {
		call := func(name string, number uintptr, a, b uintptr) {
			if _, _, errno := unix.RawSyscall(number, a, b, 0); errno != 0 {
				fmt.Println(name+":", errno)
			}
		}
		call("personality, asked", unix.SYS_PERSONALITY, 0xffffffff, 0)
		call("personality of Linux", unix.SYS_PERSONALITY, 0, 0)
		call("ptrace of oneself", unix.SYS_PTRACE, unix.PTRACE_TRACEME, 0)
		call("unshare of files", unix.SYS_UNSHARE, unix.CLONE_FS, 0)
		call("socket", unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM)
		fmt.Println("done")
	}
}

// What is in a space has no way to this machine's keys, kernel and mounts, nor to its init.
func TestBwrapRefusesTheCallsOfEscapes(t *testing.T) {
	if runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		t.Skip("no filter for", runtime.GOARCH)
	}
	s := bwrapSpace(t)
	// Given a key in the keyrings of evalrun and its user.
	key := unique(t)
	for _, ring := range []int{unix.KEY_SPEC_SESSION_KEYRING, unix.KEY_SPEC_USER_KEYRING} {
		if id, err := unix.AddKey("user", key, []byte("secret"), ring); err == nil {
			t.Cleanup(func() { _, _ = unix.KeyctlInt(unix.KEYCTL_UNLINK, id, ring, 0, 0) })
		} else {
			t.Log("no key in a keyring of evalrun:", err)
		}
	}
	for _, user := range []string{"", "root", "agent"} {
		s.User = user
		got := say(t, s, roleScript("hostile", key))
		if !strings.HasSuffix(got, "tried") {
			t.Errorf("user %q: %s", user, got)
		}
		for line := range strings.Lines(got) {
			if what, errno, ok := strings.Cut(strings.TrimSpace(line), ": "); ok && errno != "EPERM" {
				t.Errorf("user %q: %s: %s, want EPERM", user, what, errno)
			}
		}
		// Who asked to be traced is stopped by a signal, also by the one with which Go's runtime takes turns.
		if got := say(t, s, "GODEBUG=asyncpreemptoff=1 "+roleScript("usual")); got != "done" {
			t.Errorf("user %q: what is usual does not work: %s", user, got)
		}
	}
}

// What is started for a space has a session keyring of its own, even where a call gets past the
// filter.
func TestBwrapIsStartedWithASessionKeyringOfItsOwn(t *testing.T) {
	runtime.LockOSThread() // its keyring is the thread's, which ends with the test
	if _, err := unix.KeyctlInt(unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0, 0, 0); errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		t.Skip("no keyrings here:", err)
	} else if err != nil {
		t.Fatal(err)
	}
	out, err := role("starter").Output()
	check(err)
	if ids := strings.Fields(string(out)); len(ids) != 2 || ids[0] == ids[1] {
		t.Errorf("the session keyrings of evalrun and of what it has started are %q", out)
	}
}

// A program for i386 makes its calls by other numbers, which the filter knows too.
func TestBwrapRefusesTheCallsOfI386(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("i386 is another convention of amd64 only")
	}
	s := bwrapSpace(t)
	// add_key(NULL, …), then exit with its error.
	code := []byte("\xb8\x1e\x01\x00\x00\x31\xdb\x31\xc9\x31\xd2\x31\xf6\x31\xff\xcd\x80\xf7\xd8\x89\xc3\xb8\x01\x00\x00\x00\xcd\x80")
	const base, header = 0x08048000, 52 + 32
	var elf bytes.Buffer
	for _, field := range []any{
		[]byte("\x7fELF\x01\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00"), []uint16{2, 3}, []uint32{1, base + header, 52, 0, 0}, []uint16{52, 32, 1, 0, 0, 0},
		[]uint32{1, 0, base, base, header + uint32(len(code)), header + uint32(len(code)), 5, 0x1000}, code,
	} {
		check(binary.Write(&elf, binary.LittleEndian, field))
	}
	program := filepath.Join(s.Binds[0].Host, "i386")
	check(os.WriteFile(program, elf.Bytes(), 0o755))
	switch got := say(t, s, "./i386; echo $?"); got {
	case fmt.Sprint(int(unix.EPERM)):
	case fmt.Sprint(int(unix.EFAULT)):
		t.Error("the call was made")
	default:
		t.Skip("this system runs no programs for i386:", got)
	}
}
