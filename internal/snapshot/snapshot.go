// Package snapshot keeps copies of the folders in which an agent works, so that a rollout can be
// suspended, resumed by another process, and have its segment repeated. One of these folders may be
// the upper folder of an overlay.
//
// A copy has everything that an overlay's upper folder can hold: content with its holes, modes,
// owners, times, hard links, extended attributes, links, pipes, and the whiteouts and opaque
// folders by which it hides what is below. It is a manifest and packs of compressed blocks. Files
// that have not changed since the copy before are neither read nor stored again.
//
// The package assumes that nobody writes to the folders while it works, and trusts nothing else
// about them. It knows nothing of rollouts, and does not mount overlays.
package snapshot

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/failpoint"
)

// The prefixes of the attributes by which an overlay marks its folders (overlayfs, "User xattr").
const (
	// OverlayTrusted is for an overlay that root has mounted.
	OverlayTrusted = "trusted.overlay."
	// OverlayUser is for an overlay that is mounted with userxattr, as in a user namespace.
	OverlayUser = "user.overlay."
)

// Store keeps the snapshots of some folders. One process at a time may use it.
type Store struct {
	// Dir is the folder of the snapshots. It is made when it is needed.
	Dir string
	// Root is the folder in which the folders are.
	Root string
	// Overlay is the prefix of the attributes of the overlay whose upper folder is among the
	// folders; empty if none is. A snapshot may be restored for the other kind of mount.
	Overlay string
	// WithoutSockets leaves sockets out: nobody listens to them on another machine.
	WithoutSockets bool
}

// Report says how much work a snapshot was.
type Report struct {
	// Entries counts all files, folders and links. Read counts the bytes that were read from files,
	// and Stored the bytes that were written.
	Entries int
	Read    int64
	Stored  int64
	// LeftOut are the paths of devices, of which none but whiteouts are kept, and of sockets that are
	// not kept, at most ten.
	LeftOut []string
}

// ErrChanged says that a file changed while it was read. A process of the agent must still be
// running.
var ErrChanged = errors.New("it changed while it was read")

const (
	suffixManifest = ".manifest"
	suffixPack     = ".pack"
	fileIndex      = "index"
	fileUntouched  = "untouched"
)

func (s *Store) manifestFile(name string) string { return filepath.Join(s.Dir, name+suffixManifest) }

// Has reports whether there is a snapshot of this name.
func (s *Store) Has(name string) bool {
	_, err := os.Lstat(s.manifestFile(name))
	return err == nil
}

// Prune removes all snapshots but the named ones, and all packs that only the removed ones needed.
func (s *Store) Prune(keep ...string) error {
	entries, err := os.ReadDir(s.Dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	needed := map[string]bool{}
	for _, name := range keep {
		m, err := s.read(name)
		if errors.Is(err, os.ErrNotExist) {
			continue
		} else if err != nil {
			return err
		}
		for _, b := range m.Blocks {
			needed[b.Pack+suffixPack] = true
		}
	}
	// Manifests go first: one whose packs are missing would be a snapshot that cannot be restored.
	for _, suffix := range []string{suffixManifest, suffixPack, ".tmp"} {
		for _, e := range entries {
			name, ok := strings.CutSuffix(e.Name(), suffix)
			if !ok || suffix == suffixManifest && slices.Contains(keep, name) || needed[e.Name()] {
				continue
			}
			if err := os.Remove(filepath.Join(s.Dir, e.Name())); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
			failpoint.Hit("snapshot.pruned")
		}
	}
	return nil
}
