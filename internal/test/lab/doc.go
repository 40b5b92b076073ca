// Package lab drives real agents with evalrun: the agents are real, their model is scripted. It
// needs the lab beside the checkout (../shared/lab) and what its install.sh installs; without them
// its tests are skipped, or fail if EVALRUN_LAB is "required".
package lab
