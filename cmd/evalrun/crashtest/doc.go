// Package crashtest kills the real evalrun at every durable step and at random moments, lets another process go on, and
// checks that nothing was lost, nothing finished twice and no job was started twice. It holds only tests.
package crashtest
