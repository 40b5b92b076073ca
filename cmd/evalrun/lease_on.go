//go:build failpoint

package main

import (
	"os"
	"time"
)

// leaseForTests lets the crash suite see leases run out without waiting half a minute.
func leaseForTests() (time.Duration, error) {
	if text := os.Getenv("EVALRUN_LEASE"); text != "" {
		return time.ParseDuration(text)
	}
	return 0, nil
}
