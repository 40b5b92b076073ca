package snapshot

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

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

// check makes sure that no reference in a manifest leads out of it.
func (m *manifest) check() error {
	for i, e := range m.Entries {
		switch {
		case e.Parent < -1 || e.Parent >= i || e.Parent >= 0 && m.Entries[e.Parent].Type != typeFolder,
			e.Type == typeSame && (e.Same < 0 || e.Same >= i || !m.Entries[e.Same].Shared):
			return fmt.Errorf("entry %d refers to one that is not before it", i)
		case len(e.Name) == 0 || bytes.ContainsAny(e.Name, "/\x00") || string(e.Name) == "." || string(e.Name) == "..":
			return fmt.Errorf("entry %d has the name %q", i, e.Name)
		}
		for _, p := range e.Data {
			if p.Block < 0 || p.Block >= len(m.Blocks) || p.At < 0 || p.At+int64(m.Blocks[p.Block].Size) > e.Size {
				return fmt.Errorf("entry %d has content beyond its end", i)
			}
		}
	}
	return nil
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
