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

// maxSetFile is how large the file of an eval set may be that is compared with the plan of a run.
const maxSetFile = 64 << 20

// setFiles remembers the digests of the files of eval sets, by their paths.
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

// changed reports whether the file of a run's eval set is another one than when the run was planned. A
// file that is not here, or cannot be read, says nothing.
func (q *setFiles) changed(storeDir string, h schemas.Head) bool {
	if h.EvaluationSetDigest == "" || h.EvaluationSetPath == "" {
		return false
	}
	rel, err := filepath.Rel(filepath.FromSlash(h.StorePath), filepath.FromSlash(h.EvaluationSetPath)) // both are relative to the document
	if err != nil {
		return false
	}
	digest := q.digest(filepath.Join(storeDir, rel))
	return digest != "" && digest != h.EvaluationSetDigest
}

// digest is that of a file, read again only if it has changed; empty if it cannot be read.
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
