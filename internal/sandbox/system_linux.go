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

// local are the folders in /usr that hold no programs but files of this machine's administrator.
var local = []string{"/usr/local/etc", "/usr/local/var"}

// secrets are the parts of this machine's /etc that a space does not have, although many a machine
// lets all its users read them: the identity and users of this machine, credentials, and the
// environments of its services, in which people put tokens. Everything else that every user may
// read is there, as programs look for their settings under names that only they know. The rest
// stays out, also if evalrun is root, whom modes do not stop.
var secrets = []string{
	"machine-id", "machine-info", "passwd*", "group*", "shadow*", "gshadow*",
	"subuid*", "subgid*", "sudoers*", "security", "polkit-1", "pam.d",
	"ssh/*_key", "ssh/*_key.pub", "ssh/authorized_keys*", "ssl/private", "pki/*/private",
	"letsencrypt", "krb5.keytab", "*.keytab", "fstab", "crypttab", "exports*",
	"environment", "environment.d", "default", "sysconfig", "conf.d", "systemd", "init.d", "rc*.d",
	"cron*", "ldap*", "cloud", "netplan", "NetworkManager", "wpa_supplicant", "wireguard", "openvpn", "ppp",
	"apt", "yum.repos.d", "zypp", "apk", "dnf", "docker", "containers", "kubernetes", "rancher",
	"cni", "vault*", "consul*", "nomad*", "boto.cfg", "aws", "gcloud", "azure", "google*",
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

// addSettings adds the public parts of /etc. Files and folders are those that exist when the
// process is started. A folder in which nothing has to be left out is shown as it is at any time.
func (l layout) addSettings(etc string) {
	l["/etc"] = mount{kind: folder}
	entries, _ := os.ReadDir(etc) // a system without one is fine
	for _, e := range entries {
		if !secret(e.Name()) {
			l.addSetting(etc, e.Name())
		}
	}
}

// secret reports whether a path below /etc is among the secrets.
func secret(rel string) bool {
	return slices.ContainsFunc(secrets, func(pattern string) bool {
		matched, _ := filepath.Match(pattern, rel) // the patterns are valid
		return matched
	})
}

// addSetting adds a file or folder of /etc. A link remains one if its target is shown too: programs
// read the time zone's name from that of /etc/localtime. Any other link, as /etc/resolv.conf is
// with systemd, is replaced by its target.
func (l layout) addSetting(etc, name string) {
	path, inside := filepath.Join(etc, name), filepath.Join("/etc", name)
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return // a link that leads nowhere, or gone meanwhile
	}
	info, err := os.Stat(real)
	if err != nil || isPrivate(info) || !info.IsDir() && !info.Mode().IsRegular() {
		return
	}
	if to, err := os.Readlink(path); err == nil {
		if slices.ContainsFunc([]string{"/usr", "/proc"}, func(dir string) bool { return within(real, dir) }) {
			l[inside] = mount{link, to}
			return
		}
		if rel, err := filepath.Rel(etc, real); err != nil || secret(rel) || !reachable(real) {
			return
		}
	}
	l[inside] = mount{bind, real}
	if !info.IsDir() {
		return
	}
	l.leaveOut(real, inside, privateIn(real))
	for _, pattern := range secrets {
		if below, found := strings.CutPrefix(pattern, name+"/"); found {
			paths, _ := filepath.Glob(filepath.Join(real, below)) // the patterns are valid
			l.leaveOut(real, inside, paths)
		}
	}
}

// reachable reports whether every user of this machine may go to a file or folder.
func reachable(path string) bool {
	for path != "/" {
		path = filepath.Dir(path)
		if info, err := os.Stat(path); err != nil || info.Mode()&0o001 == 0 {
			return false
		}
	}
	return true
}

// addOptional adds those packages of /opt whose programs are in PATH.
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

// leaveOut leaves out the private parts of a folder of this machine that is shown at a place.
func (l layout) leaveOut(dir, inside string, private []string) {
	for _, path := range private {
		at := filepath.Join(inside, strings.TrimPrefix(path, dir))
		if _, taken := l[at]; !taken {
			l[at] = mount{kind: absent}
		}
	}
}

// rememberFor is how long the private parts of a folder with many files are remembered.
const rememberFor = time.Minute

// remembered holds the results of rememberedPrivate.
var remembered sync.Map

type privatePaths struct {
	at    time.Time
	paths []string
}

// rememberedPrivate is privateIn, called at most once a minute for a folder.
func rememberedPrivate(dir string) []string {
	if found, ok := remembered.Load(dir); ok && time.Since(found.(privatePaths).at) < rememberFor {
		return found.(privatePaths).paths
	}
	found := privatePaths{time.Now(), privateIn(dir)}
	remembered.Store(dir, found)
	return found.paths
}

// privateIn returns the paths in a folder that not everybody on this machine may read. It looks at
// every file of the folder, and names each relative to an open folder, which costs half of a walk
// with whole paths.
func privateIn(dir string) []string {
	f, err := os.Open(dir)
	if err != nil {
		return nil // gone, or forbidden to us and so to processes in the space
	}
	return appendPrivate(nil, f, dir)
}

// appendPrivate appends the private paths in an open folder, and closes it.
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

// readable and usable are the modes of a file that a stranger on this machine may read, and of a
// folder that he may use.
const readable, usable = 0o004, 0o005

// isPrivate reports whether a stranger on this machine may not read a file, or not use a folder.
func isPrivate(info fs.FileInfo) bool {
	if info.IsDir() {
		return info.Mode()&usable != usable
	}
	return info.Mode()&readable != readable
}
