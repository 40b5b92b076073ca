package rollout

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/evalrun/evalrun/internal/store"
)

// keepFiles makes the files of the segment durable and returns their digests.
func (h *held) keepFiles(names []string) ([]store.File, error) {
	if len(names) == 0 {
		return nil, nil
	}
	dir := h.segmentDir()
	files := make([]store.File, len(names))
	var paths []string
	for i, name := range names {
		var err error
		if files[i], err = digest(dir, name); err != nil {
			return nil, err
		}
		path := filepath.Join(dir, name)
		for paths = append(paths, path); filepath.Dir(path) != dir; path = filepath.Dir(path) {
			paths = append(paths, filepath.Dir(path)) // the file is in the folder of a step
		}
	}
	// The folders from the attempt's up to that of the run's rollouts may all be new.
	for range 4 {
		paths = append(paths, dir)
		dir = filepath.Dir(dir)
	}
	return files, h.host.Syncer.Sync(paths...)
}

// buffers holds the buffers into which files are read for their digests.
var buffers = sync.Pool{New: func() any { b := make([]byte, 16<<10); return &b }}

func digest(dir, name string) (store.File, error) {
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return store.File{}, err
	}
	defer f.Close()
	h := sha256.New()
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	size, err := io.CopyBuffer(h, struct{ io.Reader }{f}, *buf) // not *os.File, which would bring a buffer of its own
	return store.File{Name: name, Size: size, SHA256: hex.EncodeToString(h.Sum(nil))}, err
}
