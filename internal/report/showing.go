package report

import verdicts "github.com/evalrun/evalrun/eval/verdict"

// DefaultFailures is how many failures are explained at length by default.
const DefaultFailures = 10

// Showing says how a report is shown. The zero value shows everything at any width.
type Showing struct {
	// Failures is how many failures are explained at length; below 0 means all.
	Failures int
	// Resume is the command that goes on with the run, empty if it is not to be named.
	Resume string
	// Triggers is the command that shows what the run waits for, empty if it is not to be named.
	Triggers string
	// Dir is the folder from which files are named; empty means the store's own.
	Dir string
	// Last, if not empty, are lines before the summary.
	Last string
	// Judgement is the verdict, if it is known; nil means that of a run that may lack nothing.
	Judgement *verdicts.Judgement
	// Accept is what the run may lack.
	Accept verdicts.Accept
	Terminal
}
