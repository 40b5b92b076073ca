//go:build !failpoint

// Package failpoint names the durable steps of the program, so that a test can kill or stop the
// real process exactly there. Without the build tag failpoint it does nothing and costs nothing.
package failpoint

// Hit marks a step.
func Hit(string) {}

// Transaction marks the time of a transaction.
func Transaction() (end func()) { return func() {} }
