package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/evalrun/evalrun/internal/cgroup"
)

// The isolations of a [Config].
const (
	// IsolationProcess isolates nothing. The processes are ordinary ones of this system, in folders of
	// their own.
	IsolationProcess = "process"
	// IsolationBwrap is bubblewrap: own root, process ids, users and, unless wanted, no network.
	IsolationBwrap = "bwrap"
	// IsolationImage is bubblewrap too, with the root of an image in place of this machine's system.
	IsolationImage = "image"
	// IsolationPodman is containers of podman on this machine.
	IsolationPodman = "podman"
	// IsolationDocker is containers of a Docker daemon, which need not be on this machine.
	IsolationDocker = "docker"
)

// InsideExecutable is the path of [Command].Executable inside bwrap.
const InsideExecutable = insideRun + "/evalrun"

// InsidePrograms and InsideHost are the places in the root of an image for programs of this
// machine, and for what belongs to them. The image has other things at their own places.
const (
	InsidePrograms = insideRun + "/bin"
	InsideHost     = insideRun + "/host"
)

// insideRun is the folder of evalrun's own things inside bwrap.
const insideRun = "/run/evalrun"

// insideSocket is the path of the socket of a forward inside bwrap.
func insideSocket(i int) string { return fmt.Sprintf("%s/forward-%d.sock", insideRun, i) }

// Config says where processes live: which files they see and where, which network, and who they
// are.
//
// In bwrap the root is read-only, unless a Bind puts a folder there that may be written to. It
// holds the system's programs, the public part of /etc, those packages of /opt that the PATH of the
// process names, fresh /proc, /dev, /tmp, /var/tmp and /run, and the paths named here. It holds
// nothing else of this machine, and nothing that a stranger may not read. In process isolation only
// Binds (for Path and HostPath), Forwards, Exposes and Spawns are heeded, and a forwarded or
// exposed port is one of this machine's.
//
// In image isolation the root is Root, all of which may be written to, with fresh /proc and /dev
// and the paths named here.
type Config struct {
	// Isolation is IsolationProcess, IsolationBwrap or IsolationImage.
	Isolation string
	// Root is the root in image isolation and in a container.
	Root *Root
	// Space is the container in isolation by an engine. It is made with the Root, the Binds and the
	// Visible paths of the first process that is started in it.
	Space Space
	// Remote is the container in isolation by a Docker daemon, which gets the Binds as copies. Visible
	// and Hidden have no meaning there, and Own holds for Binds.
	Remote Remote
	// Binds are the files and folders of this machine that the processes get, and their places.
	Binds []Bind
	// Visible are paths of this machine that are seen read-only at the same place, such as an
	// agent's installation.
	Visible []string
	// Hidden are paths of this machine that are not seen, wherever they lie, except for parts that
	// Binds and Visible name. A path that does not exist when the process is started is not hidden.
	Hidden []string
	// Network gives the processes this machine's network. Without it they have a loopback of their
	// own, and Forwards.
	Network bool
	// Forwards are the ports of the inner loopback that lead out.
	Forwards []Forward
	// Exposes are the sockets of this machine that lead to ports of the inner loopback, and Spawns
	// those that lead to a program which is started inside. The sockets are there when Start
	// returns; they lead in as soon as the process is ready.
	Exposes []Expose
	Spawns  []Spawn
	// User is who the processes are: empty for evalrun's own user, "root", a user's number, or a name,
	// which gets number 1000. All of them act on files as evalrun's own user.
	//
	// In image isolation, and in a container, it is a user of the image, name or number, with ":" and
	// a group if it has another than its own; empty for root. If evalrun is root the processes act on
	// files as that user.
	User string
	// Own are inside paths that are given to User, without what is in them, in image isolation and in
	// a container.
	Own []string
	// Limits bound what the process and everything that it starts use together, as far as that can be
	// kept here; see [cgroup.Missing].
	Limits cgroup.Limits
	// Hostname is the name of the machine as the processes see it; empty for its own.
	Hostname string
}

// Bind gives a file or folder of this machine to a space. Nothing here follows links below Host,
// but a process may have made some. A Bind at / is the root of the space. What it has at the places
// of the system is not seen and cannot be changed.
type Bind struct {
	Host     string
	Inside   string
	Writable bool
}

// Forward leads connections to 127.0.0.1:Port inside to a Unix socket of this machine, which must
// be listened to when the process is started.
type Forward struct {
	Port   int
	Socket string
}

// Isolated reports whether the processes have a file tree and process ids of their own, and could
// have a network of their own.
func (s *Config) Isolated() bool { return s != nil && s.Isolation != IsolationProcess }

// Contained reports whether the processes live in a container over a root of this machine.
func (s *Config) Contained() bool { return s != nil && s.Isolation == IsolationPodman }

// IsRemote reports whether the processes live where no file of this machine is.
func (s *Config) IsRemote() bool { return s != nil && s.Isolation == IsolationDocker }

// HasOwnLoopback reports whether a port of 127.0.0.1 is another one inside than on this machine, so
// that only Forwards and Exposes connect the two.
func (s *Config) HasOwnLoopback() bool { return s.Isolated() && (!s.Network || s.IsRemote()) }

// HasImage reports whether the programs and libraries are not those of this machine.
func (s *Config) HasImage() bool {
	return s != nil && s.Isolation == IsolationImage || s.Contained() || s.IsRemote()
}

// Path translates an inside path into the one that a process in the space must be told. In bwrap
// that is the path itself, and in process isolation the place below the bind that it falls in.
// Command's Path, Args, Dir and Env are not translated again.
func (s *Config) Path(inside string) string {
	if s == nil || s.Isolation != IsolationProcess {
		return inside
	}
	if host, ok := s.bound(inside); ok {
		return host
	}
	return inside
}

// HostPath is the place of an inside path on this machine, if the path is in a bind or a visible
// path.
func (s *Config) HostPath(inside string) (string, bool) {
	if s == nil || s.Isolation == IsolationProcess {
		return s.Path(inside), true
	}
	if host, ok := s.bound(inside); ok {
		return host, true
	}
	inside = filepath.Clean(inside)
	return inside, slices.ContainsFunc(s.Visible, func(v string) bool { return within(inside, filepath.Clean(v)) })
}

// Shows reports whether a path of this machine, or something below it, can be seen in bwrap at the
// same place if it is not hidden.
func (s *Config) Shows(path string) bool {
	path = filepath.Clean(path)
	return slices.ContainsFunc(s.shown(), func(seen string) bool {
		seen = filepath.Clean(seen)
		return within(path, seen) || within(seen, path)
	})
}

// shown are the places at which a space has the same files as this machine.
func (s *Config) shown() []string {
	if s.HasImage() {
		return s.Visible
	}
	return append([]string{"/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/opt"}, s.Visible...)
}

// bound translates an inside path by the longest bind that holds it. In bwrap a bind at / does not
// hold the places of the system.
func (s *Config) bound(inside string) (host string, ok bool) {
	inside = filepath.Clean(inside)
	longest := 0
	for _, b := range s.Binds {
		at := filepath.Clean(b.Inside)
		if at == "/" && s.Isolation == IsolationBwrap &&
			slices.ContainsFunc(s.shown(), func(seen string) bool { return within(inside, filepath.Clean(seen)) }) {
			continue
		}
		if len(at) > longest && within(inside, at) {
			longest, host, ok = len(at), filepath.Join(b.Host, strings.TrimPrefix(inside, at)), true
		}
	}
	return host, ok
}

// within reports whether a clean path is dir or lies below it.
func within(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}

// Supported returns the reason why an isolation cannot be used here, or nil if it can.
func Supported(isolation string) error {
	switch isolation {
	case IsolationProcess:
		return nil
	case IsolationBwrap:
		return Available()
	case IsolationImage:
		return ImageAvailable()
	}
	return fmt.Errorf("isolation %q is not known: use %q, %q or %q",
		isolation, IsolationImage, IsolationBwrap, IsolationProcess)
}

// users matches the values of User, as useradd has it. It is compiled on first use, because that
// takes too long for the start of every process.
var users = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^([a-z_][a-z0-9_-]{0,31}|[0-9]{1,9})?$`)
})

// check finds errors in a space before anything is started in it.
func (s *Config) check() error {
	switch {
	case s.Contained() && s.Space == nil:
		return fmt.Errorf("isolation %q needs a container", s.Isolation)
	case s.IsRemote() && s.Remote == nil:
		return fmt.Errorf("isolation %q needs a container", s.Isolation)
	case s.Contained(), s.IsRemote(): // entering the space tells whether it can be made
	default:
		if err := Supported(s.Isolation); err != nil {
			return err
		}
	}
	if s.Isolation == IsolationImage {
		if err := s.Root.check(); err != nil {
			return err
		}
	} else if !s.HasImage() && !users().MatchString(s.User) {
		return fmt.Errorf("user %q: expected a name such as \"agent\", a number, or \"root\"", s.User)
	}
	taken := map[string]string{}
	for _, b := range s.Binds {
		if err := exists("bind", b.Host); err != nil {
			return err
		}
		at := filepath.Clean(b.Inside)
		if !filepath.IsAbs(at) || at == "/" && !b.Writable {
			return fmt.Errorf("bind %s: its place inside, %q, must be an absolute path, and below / if it is read-only",
				b.Host, b.Inside)
		}
		if first, ok := taken[at]; ok {
			return fmt.Errorf("bind %s: %s is already the place of %s", b.Host, at, first)
		}
		taken[at] = b.Host
	}
	for _, v := range s.Visible {
		if err := exists("visible path", v); err != nil {
			return err
		}
		if filepath.Clean(v) == "/" {
			return errors.New("visible path /: that would show the whole machine; name the folders that are needed")
		}
	}
	for _, h := range s.Hidden {
		if !filepath.IsAbs(h) {
			return fmt.Errorf("hidden path %q must be absolute", h)
		}
	}
	ports := map[int]bool{}
	for _, f := range s.Forwards {
		if f.Port < 1 || f.Port > 65535 || ports[f.Port] {
			return fmt.Errorf("forwarded port %d: expected a number from 1 to 65535 that is not forwarded yet", f.Port)
		}
		ports[f.Port] = true
		if err := exists("forward to socket", f.Socket); err != nil {
			return err
		}
	}
	return s.checkEntrances()
}

func exists(what, path string) error {
	if !filepath.IsAbs(path) {
		return fmt.Errorf("%s %q must be an absolute path", what, path)
	}
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// identity is who the processes of a space are.
type identity struct {
	uid, gid int
	name     string // empty if the system's user database has it
}

func (s *Config) identity() identity {
	switch s.User {
	case "":
		return identity{uid: os.Geteuid(), gid: os.Getegid()}
	case "root":
		return identity{name: "root"}
	}
	if n, err := strconv.Atoi(s.User); err == nil {
		return identity{uid: n, gid: n}
	}
	return identity{1000, 1000, s.User}
}

// lookPath finds a program without a slash in its name in the PATH of an environment. The starter
// of a process in a space cannot look it up.
func lookPath(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	path := lookup(env, "PATH")
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			continue
		}
		file := filepath.Join(dir, name)
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return file, nil
		}
	}
	return "", fmt.Errorf("%s: %w in PATH=%s", name, os.ErrNotExist, path)
}
