package container

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// unmount takes a root away, whoever looks at it still.
func unmount(path string) error {
	if err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
		return fmt.Errorf("unmount %s: %w", path, err)
	}
	return nil
}
