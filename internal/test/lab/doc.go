// Package lab drives real agents, whose model is scripted, with evalrun. It needs the lab beside
// the checkout (../shared/lab) and what its install.sh installs. Without them its tests are
// skipped, or fail if EVALRUN_LAB is "required".
package lab
