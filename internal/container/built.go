package container

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// builtImage is the name of the image that a service is built as: the same for the same content, so
// that a second rollout, or a second task, builds nothing. What cannot be read is the builder's to
// say.
func builtImage(build map[string]any) string {
	sum := sha256.New()
	dir, _ := build["context"].(string)
	rest := map[string]any{}
	for key, value := range build {
		if key != "context" {
			rest[key] = value
		}
	}
	_ = json.NewEncoder(sum).Encode(rest) // plain values, and a hash takes everything
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		info, err := e.Info()
		if err != nil {
			return nil
		}
		rel, _ := filepath.Rel(dir, path) // which is below it
		target, _ := os.Readlink(path)
		_, _ = fmt.Fprintf(sum, "%q %v %q %d\n", rel, info.Mode(), target, info.Size())
		if info.Mode().IsRegular() {
			if f, err := os.Open(path); err == nil {
				_, _ = io.Copy(sum, f)
				_ = f.Close() // only read
			}
		}
		return nil
	})
	return "localhost/evalrun-service:" + hex.EncodeToString(sum.Sum(nil)[:16])
}
