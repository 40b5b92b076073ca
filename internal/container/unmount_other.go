//go:build !linux

package container

// unmount does nothing, because roots are mounted on Linux only.
func unmount(string) error { return nil }
