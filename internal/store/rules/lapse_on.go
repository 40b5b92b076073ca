//go:build !nolapse

package rules

// lapsed is the condition that a lease has run out, so that another process may take over what it was
// for. It is never met in a build of the crash suite, which must then fail.
func lapsed(now string) string { return "lease_until <= " + now }
