//go:build notoken

package rules

// byToken says that what a process holds is what it knows that it has claimed, and not what the store says it
// holds: a claim whose answer was lost must not be kept for ever. It is off only in a build for which the
// specification of the store must fail.
const byToken = false
