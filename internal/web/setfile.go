package web

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/evalrun/evalrun/schemas"
)

// maxSetFile is the most bytes of an eval set's file that is compared with the plan of a run.
const maxSetFile = 64 << 20

// setFiles caches the digests of the files of eval sets, by their paths.
type setFiles struct {
	mu   sync.Mutex
	seen map[string]setFile
}

// setFile is a file as it was when it was read.
type setFile struct {
	size    int64
	changed time.Time
	digest  string
}

// changed reports whether the file of a run's eval set has changed since the run was planned. It is
// false for a file that is missing or cannot be read.
func (q *setFiles) changed(storeDir string, h schemas.Head) bool {
	if h.EvaluationSetDigest == "" || h.EvaluationSetPath == "" {
		return false
	}
	// Both paths are relative to the document.
	rel, err := filepath.Rel(filepath.FromSlash(h.StorePath), filepath.FromSlash(h.EvaluationSetPath))
	if err != nil {
		return false
	}
	digest := q.digest(filepath.Join(storeDir, rel))
	return digest != "" && digest != h.EvaluationSetDigest
}

// digest returns the digest of a file, which it reads again only if the file has changed; empty if
// it cannot be read.
func (q *setFiles) digest(path string) string {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxSetFile {
		return ""
	}
	q.mu.Lock()
	known, ok := q.seen[path]
	q.mu.Unlock()
	if ok && known.size == info.Size() && known.changed.Equal(info.ModTime()) {
		return known.digest
	}
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }() // it was only read
	sum := sha256.New()
	if _, err := io.Copy(sum, io.LimitReader(f, maxSetFile)); err != nil {
		return ""
	}
	digest := "sha256:" + hex.EncodeToString(sum.Sum(nil))
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.seen == nil || len(q.seen) >= 1000 {
		q.seen = map[string]setFile{}
	}
	q.seen[path] = setFile{info.Size(), info.ModTime(), digest}
	return digest
}
