// Package crash runs the real evalrun in several processes. It kills and stops them at every
// durable step and at random moments, and lets several work on one run at once. Nothing may be
// lost, nothing finish twice, no job be started twice. It holds only tests.
package crash
