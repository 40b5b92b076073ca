//go:build !linux

package footprint

// GiveBack does nothing: only Linux has what it needs.
func GiveBack() {}
