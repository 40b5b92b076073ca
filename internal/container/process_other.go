//go:build !linux && !darwin

package container

func bootID() string     { return "" }
func pidSpace() string   { return "" }
func startOf(int) string { return "" }
func machineID() string  { return "" }
