package sqlite

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// header is the part of a database's first page that inspect needs: the database header and the
// header of the page's b-tree, which is the list of tables (https://sqlite.org/fileformat.html
// sections 1.3 and 1.6).
type header [108]byte

func (h *header) magic() bool           { return string(h[:16]) == "SQLite format 3\x00" }
func (h *header) applicationID() uint32 { return binary.BigEndian.Uint32(h[68:]) }
func (h *header) userVersion() int      { return int(int32(binary.BigEndian.Uint32(h[60:]))) }
func (h *header) tables() bool          { return binary.BigEndian.Uint16(h[103:]) > 0 }

func (h *header) pageSize() int64 {
	if size := int64(binary.BigEndian.Uint16(h[16:])); size != 1 {
		return size
	}
	return 65536
}

// size is how long the file should be; 0 if the header does not say.
func (h *header) size() int64 {
	if binary.BigEndian.Uint32(h[24:]) != binary.BigEndian.Uint32(h[92:]) {
		return 0 // written by a version of SQLite that did not keep the count
	}
	return int64(binary.BigEndian.Uint32(h[28:])) * h.pageSize()
}

// inspect looks at a store's file without changing it, and reports whether there is a store. If
// there is none it is still to be made. SQLite itself would make an empty database of some files
// that are refused here, and leave its own files beside the others.
func inspect(file string, mustExist bool) (exists bool, err error) {
	f, err := os.Open(file)
	if errors.Is(err, os.ErrNotExist) {
		return false, inspectMissing(file, mustExist)
	}
	if err != nil {
		return false, fmt.Errorf("cannot open the store: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return false, fmt.Errorf("cannot open the store: %w", err)
	}
	if info.Size() == 0 {
		if hasWAL(file) {
			return false, nil // being made at this moment, or nearly
		}
		return false, inspectEmpty(file, mustExist)
	}
	var h header
	if n, err := io.ReadFull(f, h[:]); err != nil || !h.magic() {
		if n >= 16 && h.magic() {
			return false, cutError(file, info.Size(), h.size())
		}
		return false, fmt.Errorf(
			"%s is not an evalrun store, or it is damaged: it does not begin like an SQLite database; it was left as it is: restore it from a copy, or give another folder with --store",
			file)
	}
	switch id := h.applicationID(); {
	case id != applicationID && id != 0, id == 0 && h.tables():
		return false, foreignError(file, id)
	case h.userVersion() > len(migrations):
		return false, newerError(file, h.userVersion())
	case id == applicationID && h.userVersion() <= 0 && !hasWAL(file):
		return false, versionError(file, h.userVersion())
	}
	// With a write-ahead log the file may be behind what the log holds.
	if !hasWAL(file) && (info.Size() < h.size() || h.pageSize() < 512 || info.Size()%h.pageSize() != 0) {
		return false, cutError(file, info.Size(), h.size())
	}
	return h.applicationID() == applicationID, nil
}

func inspectMissing(file string, mustExist bool) error {
	if mustExist {
		return fmt.Errorf("there is no store in %s; give its folder with --store, or start a run there first: %w",
			filepath.Dir(file), os.ErrNotExist)
	}
	return nil
}

// inspectEmpty looks at an empty file. A process that died at once left it, or something else has
// cut it.
func inspectEmpty(file string, mustExist bool) error {
	if _, err := os.Stat(filepath.Join(filepath.Dir(file), "runs")); err == nil {
		return fmt.Errorf(
			"%s is empty, but there are runs beside it: it is damaged; it was left as it is: restore it from a copy", file)
	}
	return inspectMissing(file, mustExist)
}

func hasWAL(file string) bool {
	info, err := os.Stat(file + "-wal")
	return err == nil && info.Size() > 0
}

func cutError(file string, size, expected int64) error {
	return fmt.Errorf("%s is damaged: it is cut (%d bytes of %d); it was left as it is: restore it from a copy",
		file, size, max(expected, size+1))
}

func foreignError(file string, id uint32) error {
	return fmt.Errorf(
		"%s is an SQLite database of another program (application id %#x), not an evalrun store; it was left as it is: give another folder with --store",
		file, id)
}

func newerError(file string, version int) error {
	return fmt.Errorf(
		"%s was written by a newer evalrun (schema %d, this one knows %d); it was left as it is: update evalrun",
		file, version, len(migrations))
}

func versionError(file string, version int) error {
	return fmt.Errorf(
		"%s says that it has schema %d, which no evalrun writes: it is damaged, or another program has changed it; it was left as it is: restore it from a copy",
		file, version)
}
