//go:build !failpoint

package main

import "time"

// leaseForTests is the store's default except in a build for the crash suite.
func leaseForTests() (time.Duration, error) { return 0, nil }
