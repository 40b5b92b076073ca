// Package record is the record that a rollout leaves: the files of its segments, the trajectory and
// the traces in them, the report of a segment besides its outcome, and the use of models.
//
// Agents write it, and documents, pages and exports read it. It knows where files are and what they
// mean. It starts nothing, and knows neither agents nor what runs them.
package record
