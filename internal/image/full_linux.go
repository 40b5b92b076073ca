package image

import "golang.org/x/sys/unix"

// free is how many bytes this user can still write to the disk of a folder.
func free(dir string) uint64 {
	var s unix.Statfs_t
	if unix.Statfs(dir, &s) != nil {
		return 1 << 62 // then something else is wrong
	}
	return s.Bavail * uint64(s.Bsize) //nolint:gosec // the size of a block
}
