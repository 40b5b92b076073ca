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

	"github.com/evalrun/evalrun/internal/image"
)

// builtImage is the name of the image that a service is built as. It is the same for the same
// content, so that a second rollout, or a second task, builds nothing. A file that cannot be read
// is an error, since two contexts that differ in it would get one name.
func builtImage(build map[string]any) (string, error) {
	sum := sha256.New()
	dir, _ := build["context"].(string)
	rest := map[string]any{}
	for key, value := range build {
		if key != "context" {
			rest[key] = value
		}
	}
	_ = json.NewEncoder(sum).Encode(rest) // these are plain values, and a hash takes everything
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return addFile(sum, dir, path)
	})
	return image.ServiceImages + ":" + hex.EncodeToString(sum.Sum(nil)[:16]), err
}

// addFile adds the name, mode and content of a file in a folder to a sum.
func addFile(sum io.Writer, dir, path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	rel, _ := filepath.Rel(dir, path) // which is below it
	target, _ := os.Readlink(path)
	_, _ = fmt.Fprintf(sum, "%q %v %q %d\n", rel, info.Mode(), target, info.Size())
	if !info.Mode().IsRegular() {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // only read
	_, err = io.Copy(sum, f)
	return err
}
