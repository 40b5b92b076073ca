// Package bench measures the built program: what 10,000 suspended rollouts cost. It holds only
// benchmarks; docs/performance.md has their figures.
package bench
