package workspace

import (
	"errors"

	"golang.org/x/sys/unix"
)

// ErrTooDeep says that folders are nested too deep to be measured.
var ErrTooDeep = errors.New("folders are nested too deep to be measured")

// deepest is how many folders Usage descends. Each of them is open meanwhile.
const deepest = 500

// Usage returns how many bytes of the disk folders take, while processes may be changing them. A
// file with several names counts once, and a hole does not count. A folder of ours that an agent
// has closed is opened while it is measured. Folders that still cannot be read are skipped, and so
// are files that disappear meanwhile.
func Usage(dirs ...string) (int64, error) {
	u := usage{seen: map[inode]bool{}}
	for _, dir := range dirs {
		if err := u.add(unix.AT_FDCWD, dir, 0); err != nil {
			return u.bytes, err
		}
	}
	return u.bytes, nil
}

type inode struct{ dev, ino uint64 }

type usage struct {
	bytes int64
	// seen holds the files with several names that were counted.
	seen map[inode]bool
	buf  [8 << 10]byte
}

// add adds a folder with everything in it.
func (u *usage) add(in int, name string, depth int) error {
	if depth == deepest {
		return ErrTooDeep
	}
	defer unlock(in, name)()
	fd, err := unix.Openat(in, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
		return err // a lack of file descriptors must not make the sum smaller
	} else if err != nil {
		return nil
	}
	defer func() { _ = unix.Close(fd) }() // only read
	var names []string
	for {
		n, err := unix.ReadDirent(fd, u.buf[:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n <= 0 {
			break
		}
		for rest := u.buf[:n]; len(rest) > 0; {
			var used int
			if used, _, names = unix.ParseDirent(rest, -1, names); used == 0 {
				break
			}
			rest = rest[used:]
		}
	}
	for _, name := range names {
		var st unix.Stat_t
		if unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
			continue
		}
		folder := st.Mode&unix.S_IFMT == unix.S_IFDIR
		if st.Nlink > 1 && !folder {
			id := inode{uint64(st.Dev), st.Ino} //nolint:unconvert // it has another type elsewhere
			if u.seen[id] {
				continue
			}
			u.seen[id] = true
		}
		u.bytes += st.Blocks * 512 // stat(2): blocks have this size, whatever the file system's is
		if folder {
			if err := u.add(fd, name, depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}
