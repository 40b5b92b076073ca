package sandbox

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// rootFailed is the exit status of an evalrun that could not mount a root.
const rootFailed = 126

// rootMain mounts the root that the orders name and follows them. It does not return.
func rootMain(file string) {
	if err := followRoot(file); err != nil {
		fmt.Fprintln(os.Stderr, "evalrun:", err)
		os.Exit(rootFailed)
	}
	os.Exit(0)
}

func followRoot(file string) error {
	fd, err := strconv.Atoi(file)
	if err != nil {
		return errors.New("this is for evalrun's own use")
	}
	f := os.NewFile(uintptr(fd), "root")
	var o rootOrders
	if f == nil || json.NewDecoder(f).Decode(&o) != nil {
		return errors.New("this is for evalrun's own use")
	}
	_ = f.Close() // in memory, and only read
	if len(o.Lower) == 0 {
		return tryOverlay(o.InUser)
	}
	if err := mountRoot(&o); err != nil {
		return err
	}
	if o.Program == "" {
		return sendFile(3, o.Merged)
	}
	if err := makeRooms(o.Merged, o.Rooms); err != nil {
		return fmt.Errorf("make room in the root of the image: %w", err)
	}
	if o.InUser {
		if err := o.setUser(); err != nil {
			return err
		}
	}
	for i, arg := range o.Args {
		if arg == unmounted {
			o.Args[i] = o.Merged
		}
	}
	return fmt.Errorf("start %s: %w", o.Program, syscall.Exec(o.Program, o.Args, os.Environ()))
}

// mountRoot mounts the overlay. It names the folders by open files, because their paths may have
// characters that separate options, or be too long together.
func mountRoot(o *rootOrders) error { return o.mount("overlay", o.InUser) }

// Mount mounts the root at Merged, for an engine that makes a container of it. The system shows
// source as that of the mount.
func (r *Root) Mount(source string) error {
	if err := r.check(); err != nil {
		return err
	}
	return r.mount(source, false)
}

func (r *Root) mount(source string, inUser bool) error {
	options := "index=off,metacopy=off,redirect_dir=off"
	if inUser {
		options = "userxattr"
	}
	for _, dirs := range []struct {
		option string
		paths  []string
	}{{"lowerdir", r.Lower}, {"upperdir", []string{r.Upper}}, {"workdir", []string{r.Work}}} {
		var open []string
		for _, path := range dirs.paths {
			fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			if err != nil {
				return fmt.Errorf("mount the root of the image: %s: %w", path, err)
			}
			defer func() { _ = unix.Close(fd) }() // only named
			open = append(open, fmt.Sprintf("/proc/self/fd/%d", fd))
		}
		options += "," + dirs.option + "=" + strings.Join(open, ":")
	}
	if err := unix.Mount(source, r.Merged, "overlay", unix.MS_NODEV, options); err != nil {
		return fmt.Errorf("mount the root of the image at %s: %w%s", r.Merged, err, hintOf(r.Upper, err))
	}
	return r.makeVolumes()
}

// makeVolumes makes the folders of the image's volumes, as Docker does when a container starts. Links lead to
// where they do in the image. What is in the way is the image's own, or the agent's, and stays.
func (r *Root) makeVolumes() error {
	for _, at := range r.Volumes {
		for i := range at {
			if i > 0 && at[i] == '/' {
				if err := r.makeFolder(at[:i]); err != nil {
					return err
				}
			}
		}
		if err := r.makeFolder(at); err != nil {
			return err
		}
	}
	return nil
}

// makeFolder makes a folder of the mounted root, unless something is in the way.
func (r *Root) makeFolder(at string) error {
	root, err := unix.Open(r.Merged, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(root) }()
	above, err := unix.Openat2(root, path.Dir(at), &unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT})
	if err != nil {
		return nil
	}
	defer func() { _ = unix.Close(above) }()
	if err := unix.Mkdirat(above, path.Base(at), 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("make the folder of the volume %s in the image: %w", at, err)
	}
	return nil
}

// hintOf says why an overlay cannot be mounted, as far as that is known.
func hintOf(upper string, err error) string {
	var fs unix.Statfs_t
	if unix.Statfs(upper, &fs) == nil && fs.Type == unix.OVERLAYFS_SUPER_MAGIC {
		return "; the store lies on an overlay itself, as in a container: put it on another file system (--store)"
	}
	if errors.Is(err, unix.EPERM) {
		return "; another user than root needs Linux 5.11 or newer"
	}
	return ""
}

// tryOverlay mounts an overlay of empty folders in memory. That memory is mounted over a folder
// that exists anyway, in this namespace only, so that nothing can be left.
func tryOverlay(inUser bool) (err error) {
	dir := os.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
		return err
	}
	o := rootOrders{Root: Root{Lower: []string{filepath.Join(dir, "l")}, Upper: filepath.Join(dir, "u"),
		Work: filepath.Join(dir, "w"), Merged: filepath.Join(dir, "m")}, InUser: inUser}
	for _, d := range []string{o.Lower[0], o.Upper, o.Work, o.Merged} {
		err = errors.Join(err, os.Mkdir(d, 0o700))
	}
	if err == nil {
		err = mountRoot(&o)
	}
	return errors.Join(err, unix.Unmount(dir, unix.MNT_DETACH))
}

// setUser puts the numbers of the user and the capabilities of root into the arguments.
func (o *rootOrders) setUser() error {
	root, err := os.OpenRoot(o.Merged)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // only read
	who, err := findAccount(o.User, func(name string) ([]byte, error) {
		return readDatabase(func(flag int) (*os.File, error) { return root.OpenFile(name, flag, 0) })
	})
	if err != nil {
		return err
	}
	var args []string
	for _, arg := range o.Args {
		switch {
		case arg == capabilitiesMark && who.uid == 0:
			args = append(args, capabilityArgs()...)
		case arg != capabilitiesMark:
			args = append(args, cmp.Or(map[string]string{
				userMark: strconv.Itoa(who.uid), groupMark: strconv.Itoa(who.gid),
			}[arg], arg))
		}
	}
	o.Args = args
	return nil
}

// sendFile sends an open folder over a socket.
func sendFile(socket int, dir string) error {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return unix.Sendmsg(socket, []byte{0}, unix.UnixRights(fd), nil, 0)
}
