package snapshot

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"

	"github.com/klauspost/compress/zstd"

	"github.com/evalrun/evalrun/internal/durable"
)

// formatVersion is the version of manifests. A later version is refused.
const formatVersion = 1

// manifest is one snapshot. Names and values are bytes, because a file system has them and JSON has
// no place for bytes that are not UTF-8.
type manifest struct {
	Version int    `json:"version"`
	ID      string `json:"id"`
	// Folders has the names of the folders in the snapshot, also of those that did not exist.
	Folders []string `json:"folders"`
	// Entries are in the order in which a restoration makes them: the content of a folder follows
	// it directly.
	Entries []*entry `json:"entries"`
	Blocks  []block  `json:"blocks"`
}

// The types of an entry.
const (
	typeFolder   = "d"
	typeFile     = "f"
	typeLink     = "l"
	typePipe     = "p"
	typeSocket   = "s"
	typeWhiteout = "w"
	// typeSame is another name of an earlier entry.
	typeSame = "="
)

var types = []string{typeFolder, typeFile, typeLink, typePipe, typeSocket, typeWhiteout, typeSame}

type entry struct {
	Type string `json:"t"`
	// Parent is the number of the entry's folder; -1 for the folders of the store.
	Parent int    `json:"p"`
	Name   []byte `json:"n"`
	Mode   uint32 `json:"m,omitempty"` // with setuid, setgid and sticky
	// UID and GID are nil if they are those of the process that made the snapshot, so that its
	// files belong to the process that restores them.
	UID  *int  `json:"u,omitempty"`
	GID  *int  `json:"g,omitempty"`
	Sec  int64 `json:"s,omitempty"` // seconds of the time of modification
	Nsec int64 `json:"ns,omitempty"`
	Size int64 `json:"z,omitempty"`
	// Data is the content of a file. Ranges without data are holes.
	Data   []piece `json:"d,omitempty"`
	Target []byte  `json:"l,omitempty"`
	// Shared says that entries of typeSame may follow. Same is the entry of which this is another
	// name.
	Shared bool    `json:"h,omitempty"`
	Same   int     `json:"e,omitempty"`
	Opaque bool    `json:"o,omitempty"`
	Xattrs []xattr `json:"x,omitempty"`
}

// piece is a part of a file, with the number of its block.
type piece struct {
	At    int64 `json:"a"`
	Block int   `json:"b"`
}

type xattr struct {
	Name  []byte `json:"n"`
	Value []byte `json:"v"`
}

// block says where the compressed bytes of a piece are.
type block struct {
	Sum    []byte `json:"h"` // SHA-256 of the content
	Size   int    `json:"z"` // of its content
	Pack   string `json:"p"`
	At     int64  `json:"a"`
	Stored int    `json:"s"` // as it is in the pack
}

func (s *Store) write(name string, m *manifest) error {
	return durable.WriteFile(s.manifestFile(name), 0o600, func(w io.Writer) error {
		return encode(w, m)
	})
}

func (s *Store) read(name string) (*manifest, error) {
	data, err := os.ReadFile(s.manifestFile(name))
	if err != nil {
		return nil, err
	}
	m := &manifest{}
	if err := decode(data, m); err != nil {
		return nil, fmt.Errorf("snapshot %s: %w", name, err)
	}
	if m.Version != formatVersion {
		return nil, fmt.Errorf("snapshot %s has format %d, and this evalrun reads format %d", name, m.Version, formatVersion)
	}
	if err := m.check(); err != nil {
		return nil, fmt.Errorf("snapshot %s: %w", name, err)
	}
	return m, nil
}

// check makes sure that no reference in a manifest leads out of it, and no name out of its folder.
func (m *manifest) check() error {
	for _, name := range m.Folders {
		if !isName([]byte(name)) {
			return fmt.Errorf("it has a folder of the name %q", name)
		}
	}
	for i, b := range m.Blocks {
		if len(b.Sum) != sha256.Size || b.Size <= 0 || b.Size > blockSize {
			return fmt.Errorf("block %d has no sum, or a size that no block has", i)
		}
	}
	seen := map[string]bool{}
	for i, e := range m.Entries {
		place := strconv.Itoa(e.Parent) + "/" + string(e.Name)
		switch {
		case !slices.Contains(types, e.Type):
			return fmt.Errorf("entry %d has the unknown type %q", i, e.Type)
		case e.Parent == -1 && !slices.Contains(m.Folders, string(e.Name)):
			return fmt.Errorf("entry %d is %q, which is in none of the folders", i, e.Name)
		case seen[place]:
			return fmt.Errorf("entry %d has the name %q, which another one has", i, e.Name)
		case e.Mode&^0o7777 != 0 || e.Size < 0:
			return fmt.Errorf("entry %d has the mode %o and the size %d", i, e.Mode, e.Size)
		case e.Parent < -1 || e.Parent >= i || e.Parent >= 0 && m.Entries[e.Parent].Type != typeFolder,
			e.Type == typeSame && (e.Same < 0 || e.Same >= i || !m.Entries[e.Same].Shared ||
				m.Entries[e.Same].Type == typeFolder || m.Entries[e.Same].Type == typeSame):
			return fmt.Errorf("entry %d refers to one that is not before it", i)
		case !isName(e.Name):
			return fmt.Errorf("entry %d has the name %q", i, e.Name)
		}
		seen[place] = true
		for _, p := range e.Data {
			if p.Block < 0 || p.Block >= len(m.Blocks) || p.At < 0 || p.At+int64(m.Blocks[p.Block].Size) > e.Size {
				return fmt.Errorf("entry %d has content beyond its end", i)
			}
		}
	}
	return nil
}

// isName reports whether a name is one of something in a folder.
func isName(name []byte) bool {
	return len(name) > 0 && !bytes.ContainsAny(name, "/\x00") && string(name) != "." && string(name) != ".."
}

// encode writes a value as compressed JSON, which carries a checksum.
func encode(w io.Writer, v any) error {
	z, err := zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	return errors.Join(json.NewEncoder(z).Encode(v), z.Close())
}

func decode(data []byte, v any) error {
	z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return err
	}
	defer z.Close()
	text, err := z.DecodeAll(data, nil)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, v)
}
