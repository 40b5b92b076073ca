package snapshot

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/internal/failpoint"
)

// Take makes a snapshot of the named folders, and replaces an older one of this name. It appears
// whole and durable, or not at all. A missing folder is recorded as missing.
func (s *Store) Take(name string, folders ...string) (*Report, error) {
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return nil, err
	}
	if err := s.touch(); err != nil {
		return nil, err
	}
	before := s.loadIndex()
	m := &manifest{Version: formatVersion, ID: uuid.NewString(), Folders: folders}
	t := &taker{store: s, before: before, packs: newPacker(s.Dir, before.blocks()), manifest: m,
		index: newIndex(name, m.ID), names: map[inode]int{}, uid: os.Geteuid(), gid: os.Getegid(),
		jobs: make(chan reading, 64)}
	if err := t.run(folders); err != nil {
		return nil, errors.Join(err, t.packs.finish())
	}
	if err := errors.Join(t.packs.rewrite(), t.packs.finish()); err != nil {
		return nil, err
	}
	t.manifest.Blocks = t.packs.blocks
	failpoint.Hit("snapshot.packed")
	if err := s.write(name, t.manifest); err != nil {
		return nil, err
	}
	failpoint.Hit("snapshot.taken")
	s.saveIndex(t.index)
	s.leaveUntouched(name)
	t.report.Entries, t.report.Stored = len(t.manifest.Entries), t.packs.stored
	return &t.report, nil
}

// inode is a file, whatever its names.
type inode struct{ dev, ino uint64 }

// taker makes one snapshot: one goroutine walks through the folders, and some read files.
type taker struct {
	store    *Store
	before   *index
	index    *index
	packs    *packer
	manifest *manifest
	uid, gid int
	// names holds the entries of files that may have several names.
	names map[inode]int
	jobs  chan reading

	mu     sync.Mutex // guards what follows
	failed error
	report Report
}

// reading is a file that a worker is to read.
type reading struct {
	file  *os.File
	entry *entry
	stat  unix.Stat_t
}

func (t *taker) run(folders []string) error {
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), 4) {
		workers.Go(t.work)
	}
	root, err := unix.Open(t.store.Root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		err = &fs.PathError{Op: "open", Path: t.store.Root, Err: err}
	} else {
		place := &place{fd: root, number: -1, path: t.store.Root}
		for _, name := range folders {
			if err = t.add(place, name); err != nil && !errors.Is(err, unix.ENOENT) {
				break
			}
			err = nil
		}
		place.close()
	}
	close(t.jobs)
	workers.Wait()
	return errors.Join(err, t.failed)
}

// place is a folder on the path of the walk.
type place struct {
	fd     int
	number int
	depth  int
	path   string
}

// mostOpen is how many folders of one path are held open. A path may have any depth.
const mostOpen = 64

func (p *place) close() {
	if p.fd >= 0 {
		_ = unix.Close(p.fd) // only read
		p.fd = -1
	}
}

// add adds the entry of a name in a folder, and everything in it.
func (t *taker) add(in *place, name string) error {
	path := filepath.Join(in.path, name)
	var stat unix.Stat_t
	if err := unix.Fstatat(in.fd, name, &stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	e := t.describe(in.number, name, &stat)
	id, number := inode{stat.Dev, stat.Ino}, len(t.manifest.Entries)
	if e.Shared {
		if first, ok := t.names[id]; ok {
			t.manifest.Entries = append(t.manifest.Entries, &entry{Type: typeSame, Parent: in.number, Name: e.Name, Same: first})
			return nil
		}
		t.names[id] = number
	}
	var err error
	switch e.Type {
	case "":
		t.leaveOut(path)
		return nil
	case typeFolder:
		t.manifest.Entries = append(t.manifest.Entries, e)
		return t.folder(in, name, number, e, &stat)
	case typeFile:
		t.manifest.Entries = append(t.manifest.Entries, e)
		return t.file(in, name, path, number, e, &stat)
	case typeLink:
		e.Target, err = readlinkat(in.fd, name)
	}
	if err == nil {
		e.Xattrs, err = listed(in.fd, name)
	}
	if err == nil {
		err = t.overlayMarks(e)
	}
	if err != nil {
		return &fs.PathError{Op: "read", Path: path, Err: err}
	}
	t.manifest.Entries = append(t.manifest.Entries, e)
	return nil
}

// describe makes an entry from a stat. Its type is empty for a device.
func (t *taker) describe(parent int, name string, stat *unix.Stat_t) *entry {
	e := &entry{Parent: parent, Name: []byte(name), Mode: stat.Mode & 0o7777, Sec: stat.Mtim.Sec, Nsec: stat.Mtim.Nsec}
	if uid := int(stat.Uid); uid != t.uid {
		e.UID = &uid
	}
	if gid := int(stat.Gid); gid != t.gid {
		e.GID = &gid
	}
	switch stat.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		e.Type = typeFolder
	case unix.S_IFREG:
		e.Type, e.Size = typeFile, stat.Size
	case unix.S_IFLNK:
		e.Type, e.Mode = typeLink, 0
	case unix.S_IFIFO:
		e.Type = typePipe
	case unix.S_IFSOCK:
		if t.store.WithoutSockets {
			return e
		}
		e.Type = typeSocket
	case unix.S_IFCHR:
		if stat.Rdev == 0 {
			e.Type = typeWhiteout // an overlay gives all of its whiteouts one inode
			return e
		}
	}
	e.Shared = e.Type != "" && e.Type != typeFolder && stat.Nlink > 1
	return e
}

func (t *taker) leaveOut(path string) {
	if len(t.report.LeftOut) < 10 {
		t.report.LeftOut = append(t.report.LeftOut, path)
	}
}

// folder adds a folder. Far below the root, the parent folder is closed meanwhile.
func (t *taker) folder(in *place, name string, number int, e *entry, stat *unix.Stat_t) error {
	inside := &place{number: number, depth: in.depth + 1, path: filepath.Join(in.path, name)}
	failed := func(err error) error { return &fs.PathError{Op: "read", Path: inside.path, Err: err} }
	return accessible(in, name, stat, 0o700, func() (err error) {
		if inside.fd, err = unix.Openat(in.fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC,
			0); err != nil {
			return failed(err)
		}
		defer inside.close()
		if e.Xattrs, err = listed(inside.fd, ""); err == nil {
			err = t.overlayMarks(e)
		}
		if err != nil {
			return failed(err)
		}
		names, err := namesIn(inside.fd)
		if err != nil {
			return failed(err)
		}
		var above unix.Stat_t
		if in.depth >= mostOpen {
			if err := unix.Fstat(in.fd, &above); err != nil {
				return failed(err)
			}
			in.close()
		}
		for _, name := range names {
			if err := t.add(inside, name); err != nil {
				return err
			}
		}
		if in.fd < 0 {
			if in.fd, err = openAbove(inside.fd, &above); err != nil {
				return failed(err)
			}
		}
		return nil
	})
}

// openAbove opens the parent of a folder, if it is the expected one.
func openAbove(fd int, expected *unix.Stat_t) (int, error) {
	above, err := unix.Openat(fd, "..", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	var stat unix.Stat_t
	if err := unix.Fstat(above, &stat); err != nil || stat.Ino != expected.Ino || stat.Dev != expected.Dev {
		return -1, errors.Join(ErrChanged, err, unix.Close(above))
	}
	return above, nil
}

// accessible calls f while the owner has the rights that the agent may have taken away, if we are
// the owner.
func accessible(in *place, name string, stat *unix.Stat_t, rights uint32, f func() error) error {
	if uid := os.Geteuid(); uid == 0 || int(stat.Uid) != uid || stat.Mode&rights == rights {
		return f()
	}
	change := func(mode uint32) error {
		if err := unix.Fchmodat(in.fd, name, mode&0o7777, 0); err != nil {
			return &fs.PathError{Op: "chmod", Path: filepath.Join(in.path, name), Err: err}
		}
		return nil
	}
	if err := change(stat.Mode | rights); err != nil {
		return err
	}
	return errors.Join(f(), change(stat.Mode))
}

// file adds a file. The file is not opened if it has not changed since the snapshot before.
func (t *taker) file(in *place, name, path string, number int, e *entry, stat *unix.Stat_t) error {
	if known := t.before.unchanged(stat); known != nil {
		e.Xattrs = known.Xattrs
		for _, p := range known.Data {
			block, ok := t.packs.find(sum(t.before.manifest.Blocks[p.Block].Sum))
			if !ok {
				return fmt.Errorf("%s: the snapshot before has a block that is not in its list", path)
			}
			e.Data = append(e.Data, piece{p.At, block})
		}
		t.index.add(number, stat)
		return nil
	}
	return accessible(in, name, stat, 0o400, func() error {
		fd, err := unix.Openat(in.fd, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
		if err != nil {
			return &fs.PathError{Op: "open", Path: path, Err: err}
		}
		if e.Xattrs, err = listed(fd, ""); err == nil { // this needs the rights now
			err = t.overlayMarks(e)
		}
		if err != nil {
			_ = unix.Close(fd) // only read
			return &fs.PathError{Op: "read", Path: path, Err: err}
		}
		t.index.add(number, stat)
		t.jobs <- reading{os.NewFile(uintptr(fd), path), e, *stat}
		return nil
	})
}

// work reads files until there are no more.
func (t *taker) work() {
	c, err := newCompressor()
	buf := make([]byte, blockSize)
	for r := range t.jobs {
		if err == nil {
			err = t.read(r, buf, c)
		}
		_ = r.file.Close() // only read
	}
	if err != nil {
		t.mu.Lock()
		t.failed = errors.Join(t.failed, err)
		t.mu.Unlock()
	}
}

// read reads one file, and again if it changed meanwhile.
func (t *taker) read(r reading, buf []byte, c *compressor) error {
	for range 2 {
		var now unix.Stat_t
		data, err := t.content(r.file, r.stat.Size, buf, c)
		if err == nil {
			err = unix.Fstat(int(r.file.Fd()), &now)
		}
		if err != nil {
			return err
		}
		if now.Ino != r.stat.Ino || now.Mode&unix.S_IFMT != unix.S_IFREG {
			break
		}
		if now.Size == r.stat.Size && now.Mtim == r.stat.Mtim {
			r.entry.Data = data
			return nil
		}
		r.stat = now
		r.entry.Size, r.entry.Sec, r.entry.Nsec = now.Size, now.Mtim.Sec, now.Mtim.Nsec
	}
	return &fs.PathError{Op: "read", Path: r.file.Name(), Err: ErrChanged}
}

// content stores the content of a file, without its holes.
func (t *taker) content(f *os.File, size int64, buf []byte, c *compressor) (data []piece, err error) {
	var total int64
	for at := int64(0); at < size; {
		begin, end, err := extent(f, at, size)
		if err != nil {
			return nil, err
		}
		if begin >= size {
			break
		}
		end = min(end, begin+blockSize-begin%blockSize) // a block stays the same if only the bytes before it change
		n, err := f.ReadAt(buf[:end-begin], begin)
		if int64(n) < end-begin { // the file was cut off meanwhile, which read notices
			return nil, &fs.PathError{Op: "read", Path: f.Name(), Err: errors.Join(ErrChanged, err)}
		}
		block, err := t.packs.add(buf[:n], c)
		if err != nil {
			return nil, err
		}
		data = append(data, piece{begin, block})
		at, total = end, total+int64(n)
	}
	t.mu.Lock()
	t.report.Read += total
	t.mu.Unlock()
	return data, nil
}

// extent returns the next part of a file that is not a hole; begin is size if there is none.
func extent(f *os.File, at, size int64) (begin, end int64, err error) {
	begin, err = f.Seek(at, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) {
		return size, size, nil
	}
	if err == nil {
		end, err = f.Seek(begin, unix.SEEK_HOLE)
	}
	if errors.Is(err, unix.EINVAL) { // the file system does not support holes
		return at, size, nil
	}
	return begin, min(end, size), err
}
