package image

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// syncFileSystem makes everything on the file system of a folder durable, with one call instead of
// one for each of the many files of a root.
func syncFileSystem(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(f.Fd())), f.Close())
}
