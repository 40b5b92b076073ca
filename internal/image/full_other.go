//go:build !linux

package image

// free cannot be found out on this system.
func free(string) uint64 { return 1 << 62 }
