//go:build !nofence

package rules

// checkFence guards every write by the fencing token. It is off only in a build of the crash suite,
// which must then fail.
const checkFence = true
