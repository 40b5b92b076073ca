package program

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

var (
	unpacking sync.Mutex
	unpacked  = map[string]string{}
)

// Unpack writes files that the program carries into the user's cache, once, into a folder called by the
// sum of their content below the one called name, and returns that folder.
func Unpack(files fs.FS, name string) (string, error) {
	unpacking.Lock()
	defer unpacking.Unlock()
	if dir, ok := unpacked[name]; ok {
		return dir, nil
	}
	dir, err := unpack(files, name)
	if err != nil {
		return "", fmt.Errorf("%w; the user's cache folder (XDG_CACHE_HOME, or in HOME) has to be one that can be written", err)
	}
	unpacked[name] = dir
	return dir, nil
}

func unpack(files fs.FS, name string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	contents := map[string][]byte{}
	sum := sha256.New()
	err = fs.WalkDir(files, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(files, path)
		contents[path] = data
		_, _ = fmt.Fprintf(sum, "%s %d\n%s", path, len(data), data)
		return err
	})
	if err != nil {
		return "", err
	}
	parent := filepath.Join(cache, "evalrun", name)
	dir := filepath.Join(parent, hex.EncodeToString(sum.Sum(nil)[:8]))
	if same(dir, contents) {
		return dir, nil
	}
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return "", err
	}
	tmp, err := os.MkdirTemp(parent, "new-")
	if err != nil {
		return "", err
	}
	for path, data := range contents {
		to := filepath.Join(tmp, filepath.FromSlash(path))
		err = errors.Join(err, os.MkdirAll(filepath.Dir(to), 0o700), os.WriteFile(to, data, 0o600))
	}
	if err == nil && os.Rename(tmp, dir) != nil { // it is there: another process was faster, or it was changed
		if !same(dir, contents) {
			err = errors.Join(os.RemoveAll(dir), os.Rename(tmp, dir))
		}
	}
	return dir, errors.Join(err, os.RemoveAll(tmp))
}

// same reports whether a folder has these files.
func same(dir string, contents map[string][]byte) bool {
	for path, data := range contents {
		there, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(path)))
		if err != nil || !bytes.Equal(there, data) {
			return false
		}
	}
	return true
}
