package snapshot

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/internal/failpoint"
)

// Restore restores the folders of a snapshot for a process that is going to change them. It does
// nothing if the folders are known to be untouched since the snapshot was taken. If it fails, or is
// ended in the middle, the folders are unusable until they are restored.
func (s *Store) Restore(name string) error {
	untouched := s.isUntouched(name)
	if err := s.touch(); err != nil || untouched {
		return err
	}
	m, err := s.read(name)
	if err != nil {
		return err
	}
	failpoint.Hit("snapshot.restoring")
	for _, folder := range append([]string{folderShared}, m.Folders...) {
		if err := RemoveAll(filepath.Join(s.Root, folder)); err != nil {
			return err
		}
	}
	r := &restorer{store: s, manifest: m, index: newIndex(name, m.ID), packs: &packReader{dir: s.Dir}, uid: os.Geteuid(),
		gid: os.Getegid(), jobs: make(chan writing, 64)}
	defer r.packs.close()
	if err := r.run(); err != nil {
		return fmt.Errorf("restoring snapshot %s: %w", name, err)
	}
	s.saveIndex(r.index)
	failpoint.Hit("snapshot.restored")
	return nil
}

// folderShared is the folder in which files with several names have one more name, their number,
// until all other names exist.
const folderShared = ".evalrun-shared"

// restorer makes the folders of one snapshot: one goroutine makes all entries, and some write the
// content of files.
type restorer struct {
	store    *Store
	manifest *manifest
	index    *index
	packs    *packReader
	uid, gid int
	jobs     chan writing
	// shared is the folder of files with several names.
	shared int
	// open holds the folders from the root to the one that is being filled.
	open []*place

	mu     sync.Mutex
	failed error
}

// writing is a file that a worker is to write.
type writing struct {
	file   *os.File
	number int
}

func (r *restorer) run() error {
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), 4) {
		workers.Go(r.work)
	}
	err := r.makeAll()
	close(r.jobs)
	workers.Wait()
	return errors.Join(err, r.failed)
}

func (r *restorer) makeAll() error {
	root, err := unix.Open(r.store.Root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: r.store.Root, Err: err}
	}
	r.open = []*place{{fd: root, number: -1, path: r.store.Root}}
	defer func() {
		for _, p := range r.open {
			p.close()
		}
	}()
	if r.shared, err = makeFolder(root, folderShared); err != nil {
		return err
	}
	defer func() { _ = unix.Close(r.shared) }()
	for number, e := range r.manifest.Entries {
		for r.top().number != e.Parent {
			if err := r.leave(); err != nil {
				return err
			}
		}
		if err := r.make(r.top(), number, e); err != nil {
			return err
		}
	}
	for len(r.open) > 1 {
		if err := r.leave(); err != nil {
			return err
		}
	}
	return RemoveAll(filepath.Join(r.store.Root, folderShared))
}

func (r *restorer) top() *place { return r.open[len(r.open)-1] }

func makeFolder(in int, name string) (int, error) {
	if err := unix.Mkdirat(in, name, 0o700); err != nil {
		return -1, &fs.PathError{Op: "mkdir", Path: name, Err: err}
	}
	fd, err := unix.Openat(in, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return fd, nil
}

// make makes one entry. A folder gets its attributes when everything is in it.
func (r *restorer) make(in *place, number int, e *entry) error {
	name := string(e.Name)
	failed := func(err error) error {
		if err == nil {
			return nil
		}
		return &fs.PathError{Op: "make", Path: filepath.Join(in.path, name), Err: err}
	}
	var err error
	switch e.Type {
	case typeFolder:
		fd, err := makeFolder(in.fd, name)
		if err != nil {
			return err
		}
		r.open = append(r.open, &place{fd: fd, number: number, path: filepath.Join(in.path, name)})
		if far := len(r.open) - 1 - mostOpen; far > 0 {
			r.open[far].close()
		}
		return nil
	case typeFile:
		fd, err := unix.Openat(in.fd, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		if err == nil {
			if err = r.share(in.fd, name, number, e); err != nil {
				_ = unix.Close(fd)
			}
		}
		if err != nil {
			return failed(err)
		}
		r.jobs <- writing{os.NewFile(uintptr(fd), filepath.Join(in.path, name)), number}
		return nil
	case typeSame:
		return failed(unix.Linkat(r.shared, strconv.Itoa(e.Same), in.fd, name, 0))
	case typeLink:
		err = unix.Symlinkat(string(e.Target), in.fd, name)
	case typePipe:
		err = unix.Mknodat(in.fd, name, unix.S_IFIFO|0o600, 0)
	case typeSocket:
		err = unix.Mknodat(in.fd, name, unix.S_IFSOCK|0o600, 0)
	case typeWhiteout:
		err = unix.Mknodat(in.fd, name, unix.S_IFCHR, 0)
	default:
		err = fmt.Errorf("the snapshot has an entry of the unknown type %q", e.Type)
	}
	if err == nil {
		err = r.share(in.fd, name, number, e)
	}
	if err == nil {
		err = r.adorn(in.fd, name, e)
	}
	return failed(err)
}

// share gives a file that may have several names the extra name by which it is found again.
func (r *restorer) share(in int, name string, number int, e *entry) error {
	if !e.Shared {
		return nil
	}
	return unix.Linkat(in, name, r.shared, strconv.Itoa(number), 0)
}

// leave completes the current folder, and goes on in the one above it.
func (r *restorer) leave() error {
	done, above := r.top(), r.open[len(r.open)-2]
	defer done.close()
	if above.fd < 0 {
		fd, err := unix.Openat(done.fd, "..", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return &fs.PathError{Op: "open", Path: above.path, Err: err}
		}
		above.fd = fd
	}
	r.open = r.open[:len(r.open)-1]
	if err := r.adorn(done.fd, "", r.manifest.Entries[done.number]); err != nil {
		return &fs.PathError{Op: "make", Path: done.path, Err: err}
	}
	return nil
}

// adorn gives an open file, or a name in an open folder, its owner, attributes, mode and times. The
// order matters: a new owner takes setuid and capabilities away, and a mode may take away our own
// rights.
func (r *restorer) adorn(fd int, name string, e *entry) error {
	flags := unix.AT_SYMLINK_NOFOLLOW
	if name == "" {
		flags = unix.AT_EMPTY_PATH
	}
	if e.UID != nil || e.GID != nil {
		uid, gid := r.uid, r.gid
		if e.UID != nil {
			uid = *e.UID
		}
		if e.GID != nil {
			gid = *e.GID
		}
		if err := unix.Fchownat(fd, name, uid, gid, flags); err != nil {
			return fmt.Errorf("give it to user %d and group %d: %w", uid, gid, err)
		}
	}
	set := func(attr string, value []byte) error {
		var err error
		if name == "" {
			err = unix.Fsetxattr(fd, attr, value, 0)
		} else {
			err = unix.Lsetxattr(xattrPath(fd, name), attr, value, 0)
		}
		if err != nil {
			return fmt.Errorf("set its attribute %s: %w", attr, err)
		}
		return nil
	}
	for _, x := range e.Xattrs {
		if err := set(string(x.Name), x.Value); err != nil {
			return err
		}
	}
	if e.Opaque {
		if r.store.Overlay == "" {
			return errors.New("it hides what an overlay has below it, and the folders have none")
		}
		if err := set(r.store.Overlay+markOpaque, []byte("y")); err != nil {
			return err
		}
	}
	var err error
	switch {
	case name == "":
		err = unix.Fchmod(fd, e.Mode)
	case e.Type != typeLink:
		err = unix.Fchmodat(fd, name, e.Mode, 0)
	}
	if err != nil {
		return fmt.Errorf("set its mode to %o: %w", e.Mode, err)
	}
	return setTimes(fd, name, e.Sec, e.Nsec)
}

// work writes files until there are no more.
func (r *restorer) work() {
	d, err := newDecompressor()
	for w := range r.jobs {
		if err == nil {
			err = r.write(w, d)
		}
		err = errors.Join(err, w.file.Close())
	}
	if d != nil {
		d.Close()
	}
	if err != nil {
		r.mu.Lock()
		r.failed = errors.Join(r.failed, err)
		r.mu.Unlock()
	}
}

// write gives one file its content and its attributes.
func (r *restorer) write(w writing, d *decompressor) error {
	e := r.manifest.Entries[w.number]
	var end int64
	for _, p := range e.Data {
		content, err := d.content(r.packs, &r.manifest.Blocks[p.Block])
		if err != nil {
			return fmt.Errorf("%s: %w", w.file.Name(), err)
		}
		if _, err := w.file.WriteAt(content, p.At); err != nil {
			return err
		}
		end = p.At + int64(len(content))
	}
	failpoint.Hit("snapshot.written")
	fd := int(w.file.Fd())
	var err error
	if end != e.Size {
		err = unix.Ftruncate(fd, e.Size)
	}
	if err == nil {
		err = r.adorn(fd, "", e)
	}
	var stat unix.Stat_t
	if err == nil {
		err = unix.Fstat(fd, &stat)
	}
	if err != nil {
		return &fs.PathError{Op: "make", Path: w.file.Name(), Err: err}
	}
	if !e.Shared { // a new name changes the inode
		r.index.add(w.number, &stat)
	}
	return nil
}
