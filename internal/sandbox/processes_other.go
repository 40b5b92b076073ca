//go:build !linux

package sandbox

func (*Config) processLimit() int { return 0 }

func limitProcesses(int) error { return nil }
