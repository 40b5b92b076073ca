package snapshot

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// index remembers the state of a snapshot's files, so that the next snapshot need not read files
// that have not changed. It compares the time of the last change of an inode, which nobody can set:
// any write to a file, its attributes or its length advances it. The first write to a mapping
// advances it too, and processes with mappings have ended before a snapshot is taken. Size and time
// of modification do not count, since an agent can set them.
//
// An index is valid until the system is started again: a power failure may revert the content of a
// file, and leave its times.
type index struct {
	Boot string `json:"boot"`
	// Name is the name of its snapshot, and ID the id of the manifest, since another snapshot may
	// have taken the name.
	Name  string  `json:"name"`
	ID    string  `json:"id"`
	Files []known `json:"files"`

	mu       sync.Mutex
	byInode  map[inode]*known
	manifest *manifest
}

// known is a file as it was at the snapshot.
type known struct {
	Dev   uint64 `json:"d"`
	Ino   uint64 `json:"i"`
	Sec   int64  `json:"s"`
	Nsec  int64  `json:"n"`
	Entry int    `json:"e"`
}

// newIndex makes an empty index of a snapshot.
func newIndex(name, id string) *index { return &index{Boot: bootID(), Name: name, ID: id} }

// add remembers a file.
func (x *index) add(entry int, stat *unix.Stat_t) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.Files = append(x.Files, known{stat.Dev, stat.Ino, stat.Ctim.Sec, stat.Ctim.Nsec, entry})
}

// unchanged returns the entry of a file that has not changed since the snapshot; nil if that is not
// known.
func (x *index) unchanged(stat *unix.Stat_t) *entry {
	k := x.byInode[inode{stat.Dev, stat.Ino}]
	if k == nil || k.Sec != stat.Ctim.Sec || k.Nsec != stat.Ctim.Nsec {
		return nil
	}
	e := x.manifest.Entries[k.Entry]
	if e.Type != typeFile || e.Size != stat.Size {
		return nil
	}
	return e
}

// blocks returns the blocks of the index's snapshot.
func (x *index) blocks() []block {
	if x.manifest == nil {
		return nil
	}
	return x.manifest.Blocks
}

// loadIndex returns the index of the last snapshot or restoration. It is empty if no index can be
// trusted.
func (s *Store) loadIndex() *index {
	x := &index{}
	data, err := os.ReadFile(filepath.Join(s.Dir, fileIndex))
	if err != nil || decode(data, x) != nil {
		return &index{}
	}
	if x.manifest, err = s.read(x.Name); err != nil || x.manifest.ID != x.ID {
		return &index{}
	}
	if x.Boot != bootID() || x.Boot == "" {
		return &index{manifest: x.manifest} // its blocks are still good
	}
	x.byInode = make(map[inode]*known, len(x.Files))
	for i := range x.Files {
		k := &x.Files[i]
		if k.Entry < 0 || k.Entry >= len(x.manifest.Entries) {
			return &index{manifest: x.manifest}
		}
		x.byInode[inode{k.Dev, k.Ino}] = k
	}
	return x
}

// racy is how old the last change of a file must be for its time to reveal a further change: clocks
// of file systems are coarse.
const racy = 20 * time.Millisecond

// saveIndex keeps an index. Without one the next snapshot only takes longer.
func (s *Store) saveIndex(x *index) {
	until := time.Now().Add(-racy)
	x.Files = slices.DeleteFunc(x.Files, func(k known) bool { return !time.Unix(k.Sec, k.Nsec).Before(until) })
	var out bytes.Buffer
	tmp := filepath.Join(s.Dir, fileIndex+".tmp")
	if encode(&out, x) != nil || os.WriteFile(tmp, out.Bytes(), 0o600) != nil ||
		os.Rename(tmp, filepath.Join(s.Dir, fileIndex)) != nil {
		_ = os.Remove(filepath.Join(s.Dir, fileIndex)) // the old index belongs to another snapshot
	}
}

// leaveUntouched records that the folders are as in a snapshot, until the system is started again.
func (s *Store) leaveUntouched(name string) {
	// Without the file the folders are restored.
	_ = os.WriteFile(filepath.Join(s.Dir, fileUntouched), []byte(bootID()+"\n"+name), 0o600)
}

// touch removes that record.
func (s *Store) touch() error {
	if err := os.Remove(filepath.Join(s.Dir, fileUntouched)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (s *Store) isUntouched(name string) bool {
	data, err := os.ReadFile(filepath.Join(s.Dir, fileUntouched))
	boot := bootID()
	return err == nil && boot != "" && string(data) == boot+"\n"+name
}

// bootID returns an id that changes each time the system is started; empty if the system has none.
func bootID() string {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// lastBlocks returns the blocks of the last snapshot or restoration, which are in packs here.
func (s *Store) lastBlocks() []block { return s.loadIndex().blocks() }
