package container

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// unmount unmounts a root even if somebody still uses it.
func unmount(path string) error {
	if err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
		return fmt.Errorf("unmount %s: %w", path, err)
	}
	return nil
}
