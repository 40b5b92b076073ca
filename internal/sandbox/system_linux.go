package sandbox

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// programs are the folders of this machine that hold its programs. They are shown whole.
var programs = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"}

// local are the folders in /usr that are no programs but what this machine's administrator has put
// there.
var local = []string{"/usr/local/etc", "/usr/local/var"}

// settings are what a space has of this machine's /etc: what libraries, shells and language
// runtimes read, and what says how the network and package indexes are reached. Everything else in
// /etc stays out, whatever its mode is: evalrun may be root, whom modes do not stop. Files are
// shown as they are when the process is started; the folders among them hold nothing but what
// everybody reads, and are shown as they are at any time.
var settings = []string{
	// The loader, libraries and the choice of programs.
	"alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ld-musl-*.path", "host.conf", "nsswitch.conf", "gai.conf",
	"localtime", "timezone", "locale.alias", "locale.conf", "mime.types", "magic", "magic.mime", "fonts", "terminfo", "mtab",
	"debian_version", "alpine-release", "redhat-release", "system-release", "lsb-release", "os-release",
	// Shells.
	"profile", "profile.d", "bash.bashrc", "bashrc", "inputrc", "shells", "login.defs",
	// The network and its certificates.
	"hosts", "hostname", "resolv.conf", "networks", "protocols", "services", "rpc", "ethertypes",
	"ssl/certs", "ssl/cert.pem", "ssl/openssl.cnf", "ca-certificates", "ca-certificates.conf", "crypto-policies",
	"pki/ca-trust/extracted", "pki/tls/certs", "pki/tls/cert.pem", "pki/tls/openssl.cnf",
	// Language runtimes and package managers.
	"java*", "maven", "perl", "php*", "python*", "R", "gitconfig", "npmrc", "pip.conf", "wgetrc",
}

// addSystem adds the programs of this system. Where /bin is a link to usr/bin, as it is on most, it
// stays one.
func (l layout) addSystem() {
	for _, dir := range programs {
		if to, err := os.Readlink(dir); err == nil {
			l[dir] = mount{link, to}
		} else if _, err := os.Stat(dir); err == nil {
			l[dir] = mount{bind, dir}
		}
	}
	for _, dir := range local {
		if _, err := os.Stat(dir); err == nil {
			l[dir] = mount{kind: fresh}
		}
	}
	l.leaveOut("/usr/local", "/usr/local", rememberedPrivate("/usr/local"))
}

// addSettings adds what of /etc is for everybody.
func (l layout) addSettings(etc string) {
	l["/etc"] = mount{kind: folder}
	for _, pattern := range settings {
		found, _ := filepath.Glob(filepath.Join(etc, pattern)) // the patterns are valid
		for _, path := range found {
			l.addSetting(path, filepath.Join("/etc", strings.TrimPrefix(path, etc)))
		}
	}
}

// addSetting adds a file or folder. A link remains one if it leads to what is shown too: programs
// read the time zone's name from that of /etc/localtime. One that leads elsewhere, as
// /etc/resolv.conf does with systemd, is replaced by what is there.
func (l layout) addSetting(path, inside string) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return // a link that leads nowhere, or gone meanwhile
	}
	info, err := os.Stat(real)
	if err != nil || isPrivate(info) {
		return
	}
	if to, err := os.Readlink(path); err == nil && slices.ContainsFunc([]string{"/usr", "/proc"}, func(dir string) bool { return within(real, dir) }) {
		l[inside] = mount{link, to}
		return
	}
	l[inside] = mount{bind, real}
	if info.IsDir() {
		l.leaveOut(real, inside, privateIn(real))
	}
}

// addOptional adds those packages of /opt whose programs the process is to find: PATH names them.
func (l layout) addOptional(env []string) {
	for _, dir := range filepath.SplitList(lookup(env, "PATH")) {
		dir = filepath.Clean(dir)
		if filepath.Base(dir) == "bin" && filepath.Dir(dir) != "/opt" {
			dir = filepath.Dir(dir)
		}
		if info, err := os.Stat(dir); err != nil || !info.IsDir() || dir == "/opt" || !within(dir, "/opt") || l.shown(dir) {
			continue
		}
		l[dir] = mount{bind, dir}
		l.leaveOut(dir, dir, rememberedPrivate(dir))
	}
}

// leaveOut leaves out what is private in a folder of this machine that is shown at a place.
func (l layout) leaveOut(dir, inside string, private []string) {
	for _, path := range private {
		at := filepath.Join(inside, strings.TrimPrefix(path, dir))
		if _, taken := l[at]; !taken {
			l[at] = mount{kind: absent}
		}
	}
}

// rememberFor is how long it is remembered what is private in a folder with many files.
const rememberFor = time.Minute

// remembered holds what rememberedPrivate has found.
var remembered sync.Map

type privatePaths struct {
	at    time.Time
	paths []string
}

// rememberedPrivate is privateIn, looked for once a minute.
func rememberedPrivate(dir string) []string {
	if found, ok := remembered.Load(dir); ok && time.Since(found.(privatePaths).at) < rememberFor {
		return found.(privatePaths).paths
	}
	found := privatePaths{time.Now(), privateIn(dir)}
	remembered.Store(dir, found)
	return found.paths
}

// privateIn returns the paths in a folder that not everybody on this machine may read. Every file
// of the folder is looked at, so each is named relative to an open folder, which costs half of a
// walk with whole paths.
func privateIn(dir string) []string {
	f, err := os.Open(dir)
	if err != nil {
		return nil // gone, or forbidden to us and so to what runs in the space
	}
	return appendPrivate(nil, f, dir)
}

// appendPrivate appends what is private in an open folder, and closes it.
func appendPrivate(found []string, f *os.File, dir string) []string {
	defer f.Close()
	names, _ := f.Readdirnames(-1) // what cannot be listed is gone
	for _, name := range names {
		var info unix.Stat_t
		if err := unix.Fstatat(int(f.Fd()), name, &info, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			continue // gone
		}
		switch info.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			if info.Mode&readable != readable {
				found = append(found, filepath.Join(dir, name))
			}
		case unix.S_IFDIR:
			if info.Mode&usable != usable {
				found = append(found, filepath.Join(dir, name))
				continue
			}
			fd, err := unix.Openat(int(f.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
			if err == nil {
				path := filepath.Join(dir, name)
				found = appendPrivate(found, os.NewFile(uintptr(fd), path), path)
			}
		}
	}
	return found
}

// The modes of a file that a stranger on this machine may read, and of a folder that he may use.
const readable, usable = 0o004, 0o005

// isPrivate reports whether a stranger on this machine may not read a file, or not use a folder.
func isPrivate(info fs.FileInfo) bool {
	if info.IsDir() {
		return info.Mode()&usable != usable
	}
	return info.Mode()&readable != readable
}
