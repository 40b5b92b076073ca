// Package pack writes and reads packed runs: one file, a tar archive in zstd. The manifest comes
// first, and a list of everything with checksums last, so that a reader notices a file that was cut
// or changed. The package knows files, and nothing of stores. The reader of a pack trusts no name
// in it.
package pack

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/redact"
)

// Version is the version of the format.
const Version = 1

const (
	format       = "evalrun-pack"
	manifestName = "manifest.json"
	listName     = "checksums.txt"
	// maxManifest is the most bytes of a manifest.
	maxManifest = 16 << 20
)

// Manifest describes the content of a pack.
type Manifest struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	// Evalrun is the version of the program that packed it, and StoreID the store of the runs.
	Evalrun  string    `json:"evalrun"`
	StoreID  string    `json:"storeId"`
	PackedAt time.Time `json:"packedAt"`
	Runs     []Run     `json:"runs"`
}

// Run is a run in a pack.
type Run struct {
	ID     string `json:"runId"`
	Name   string `json:"evaluationSetName"`
	Status string `json:"status"`
}

// InvalidError says why a file is no pack that can be unpacked.
type InvalidError struct{ Reason string }

// Error implements error.
func (e *InvalidError) Error() string { return e.Reason }

func invalid(format string, args ...any) error {
	return &InvalidError{redact.Line(fmt.Sprintf(format, args...))}
}

// damaged returns the error of a pack that cannot be read to its end.
func damaged(err error) error {
	var e *InvalidError
	if errors.As(err, &e) {
		return e
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return invalid("it is cut: its end is missing")
	}
	return invalid("it is damaged: %v", err)
}

func readManifest(data []byte) (m Manifest, err error) {
	if err := json.Unmarshal(data, &m); err != nil || m.Format != format {
		return m, invalid("it is not a packed run: it has no manifest of one")
	}
	if m.Version != Version {
		return m, invalid("it has version %d of the format, and this program reads version %d; unpack it with the program that has packed it (evalrun %s)", m.Version, Version, m.Evalrun)
	}
	return m, nil
}

// checkName refuses names that lead out of the folder.
func checkName(name string) error {
	switch {
	case path.IsAbs(name):
		return invalid("it has the absolute path %q", name)
	case name == "" || name == "." || path.Clean(name) != name || name == ".." ||
		strings.HasPrefix(name, "../") || strings.ContainsRune(name, 0):
		return invalid("it has the path %q, which leads out of its folder", name)
	}
	return nil
}

// linkStays reports whether a link leads to something in its own top folder, such as the folder of
// one rollout's agent.
func linkStays(name, target string) bool {
	parts := strings.SplitN(name, "/", 3)
	if len(parts) < 3 || path.IsAbs(target) || target == "" {
		return false
	}
	to := path.Join(path.Dir(name), target)
	return to == path.Join(parts[0], parts[1]) || strings.HasPrefix(to, path.Join(parts[0], parts[1])+"/")
}

// line is the list's line for an entry.
func line(kind byte, mode int64, sum []byte, name string) string {
	return fmt.Sprintf("%c %03o %x %q\n", kind, mode, sum, name)
}
