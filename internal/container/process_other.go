//go:build !linux && !darwin

package container

import "io/fs"

func bootID() string     { return "" }
func pidSpace() string   { return "" }
func startOf(int) string { return "" }
func machineID() string  { return "" }

func changeOf(fs.FileInfo) string { return "" }
