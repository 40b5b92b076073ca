package durable

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// syncFileSystem makes everything on the file system of a folder durable. Since Linux 5.8 it
// reports failed writes, syncfs(2).
func syncFileSystem(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(f.Fd())), f.Close())
}
