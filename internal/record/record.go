// Package record is what a rollout has left: the files of its segments, the trajectory and the
// traces in them, what is reported of a segment beside its outcome, and what models it has used.
//
// Agents write it, and documents, pages and exports read it. It knows where files are and what they
// mean. It starts nothing, and knows neither agents nor what runs them.
package record
