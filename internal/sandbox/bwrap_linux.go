package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Available returns the reason why bubblewrap cannot be used here, or nil if it can. It tries once.
func Available() error { return available() }

var available = sync.OnceValue(func() error {
	path, err := exec.LookPath("bwrap")
	if err != nil {
		return errors.New("bubblewrap is not installed: apt-get install bubblewrap (or dnf, apk, pacman)")
	}
	files, err := (&Config{}).files("", nil)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, path)
	defer func() { closeAll(cmd.ExtraFiles) }()
	filter, err := addFilter(cmd)
	if err != nil {
		return err
	}
	cmd.Args = slices.Concat(cmd.Args, (&Config{}).namespaces(),
		filter, files.args(), []string{"--", "/bin/sh", "-c", ":"})
	cmd.Env = []string{}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("bubblewrap does not work here: %w: %s%s", err, bytes.TrimSpace(out), userNamespaces())
	}
	return nil
})

// userNamespaces says what prevents a user who is not root from using bubblewrap.
func userNamespaces() string {
	for _, s := range []struct{ setting, forbidden string }{
		{"kernel/unprivileged_userns_clone", "0"},             // Debian before 11
		{"kernel/apparmor_restrict_unprivileged_userns", "1"}, // Ubuntu from 23.10
		{"user/max_user_namespaces", "0"},
	} {
		value, err := os.ReadFile("/proc/sys/" + s.setting)
		if err == nil && strings.TrimSpace(string(value)) == s.forbidden {
			return fmt.Sprintf(": this system forbids user namespaces: sysctl %s is %s",
				strings.ReplaceAll(s.setting, "/", "."), s.forbidden)
		}
	}
	return ": in a container, it must be started with the right to make namespaces (docker run --security-opt seccomp=unconfined --cap-add SYS_ADMIN)"
}

// wrap changes cmd, which is an init, to run in the space. The file descriptors of cmd stay the
// same.
func (s *Config) wrap(cmd *exec.Cmd, env []string) error {
	bwrap, err := exec.LookPath("bwrap")
	if err != nil {
		return Available()
	}
	if s.Isolation == IsolationImage {
		return s.wrapImage(cmd, bwrap)
	}
	files, err := s.files(cmd.Path, env)
	if err != nil {
		return err
	}
	if err := files.makeRoom(); err != nil {
		return fmt.Errorf("make room in the space: %w", err)
	}
	users, err := s.userFiles(env)
	if err != nil {
		return err
	}
	filter, err := addFilter(cmd)
	if err != nil {
		closeAll(users)
		return err
	}
	args := slices.Concat([]string{bwrap}, s.namespaces(), filter, files.args())
	for _, f := range users {
		args = append(args, "--perms", "0644",
			"--ro-bind-data", strconv.Itoa(3+len(cmd.ExtraFiles)), "/etc/"+filepath.Base(f.Name()))
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
	}
	args = append(args, files.sealArgs()...)
	cmd.Path, cmd.Args = bwrap, append(args, "--chdir", "/", "--", InsideExecutable, initCommand)
	return nil
}

// addFilter gives bwrap the filter of system calls, and returns the options that name it.
func addFilter(cmd *exec.Cmd) ([]string, error) {
	filter := seccomp()
	if len(filter) == 0 {
		return nil, nil
	}
	f, err := memoryFile("seccomp", string(filter))
	if err != nil {
		return nil, err
	}
	cmd.ExtraFiles = append(cmd.ExtraFiles, f)
	return []string{"--seccomp", strconv.Itoa(2 + len(cmd.ExtraFiles))}, nil
}

// capabilities are those of root in a space. They are the ones that Docker grants (its default
// list), except those that would open the rest of this system, as there are no user namespace and
// no device rules here: MKNOD, NET_RAW, SETFCAP, AUDIT_WRITE, SYS_CHROOT.
var capabilities = []string{"CHOWN", "DAC_OVERRIDE", "FOWNER",
	"FSETID", "KILL", "SETGID", "SETUID", "SETPCAP", "NET_BIND_SERVICE"}

// namespaces are the options that say what is shared with this system. The init is process 1, and
// bwrap ends when its whole PID namespace has. With a process 1 of bwrap's own it would end before,
// and leave that process to be reaped by others.
func (s *Config) namespaces() []string {
	args := []string{"--die-with-parent", "--new-session", "--as-pid-1",
		"--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"}
	if !s.Network {
		args = append(args, "--unshare-net")
	}
	if s.Hostname != "" {
		args = append(args, "--hostname", s.Hostname)
	}
	if who := s.identity(); os.Geteuid() != 0 || who.uid != 0 {
		return append(args, "--unshare-user", "--uid", strconv.Itoa(who.uid), "--gid", strconv.Itoa(who.gid))
	}
	return append(append(args, "--cap-drop", "ALL"), capabilityArgs()...)
}

// capabilityArgs are the options that give root its capabilities.
func capabilityArgs() (args []string) {
	for _, c := range capabilities {
		args = append(args, "--cap-add", "CAP_"+c)
	}
	return args
}

// userFiles are an /etc/passwd and an /etc/group that have the user of the space, with its HOME,
// because programs look themselves up there.
func (s *Config) userFiles(env []string) ([]*os.File, error) {
	who, home := s.identity(), "/"
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, "HOME="); ok && !strings.ContainsAny(v, ":\n") {
			home = v
		}
	}
	passwd := replaceEntry("/etc/passwd", who.name, who.uid, fmt.Sprintf("x:%d:%d::%s:/bin/sh", who.uid, who.gid, home))
	group := replaceEntry("/etc/group", who.name, who.gid, fmt.Sprintf("x:%d:", who.gid))
	var files []*os.File
	for _, content := range []struct{ name, text string }{{"passwd", passwd}, {"group", group}} {
		f, err := memoryFile(content.name, content.text)
		if err != nil {
			closeAll(files)
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// replaceEntry returns a user database in which an id has an entry, and no other entry has its
// name. An unnamed entry keeps the name it has.
func replaceEntry(file, name string, id int, entry string) string {
	old, _ := os.ReadFile(file) // a system without one is fine
	var kept []string
	for line := range strings.Lines(string(old)) {
		fields := strings.Split(line, ":")
		if len(fields) > 2 && fields[2] == strconv.Itoa(id) {
			if name == "" {
				name = fields[0]
			}
			continue
		}
		kept = append(kept, line)
	}
	if name == "" {
		name = "user"
	}
	content := name + ":" + entry + "\n"
	for _, line := range kept {
		if !strings.HasPrefix(line, name+":") {
			content += line
		}
	}
	return content
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close() // in memory, and only read
	}
}

// memoryFile is a file without a place in the file system.
func memoryFile(name, content string) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make a file in memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	if _, err := f.WriteAt([]byte(content), 0); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
