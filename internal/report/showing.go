package report

import verdicts "github.com/evalrun/evalrun/eval/verdict"

// DefaultFailures is how many failures are told at length if nobody says otherwise.
const DefaultFailures = 10

// Showing says how a report is shown. The zero value shows everything at any width.
type Showing struct {
	// Failures is how many failures are told at length; below 0 all.
	Failures int
	// Resume is the command that goes on with the run, empty if it is not to be named.
	Resume string
	// Triggers is the command that shows what is waited for, empty if it is not to be named.
	Triggers string
	// Dir is the folder from which files are named; empty for the store's own.
	Dir string
	// Last, if not empty, are lines before the summary.
	Last string
	// Judgement is the verdict, if that is known; nil for that of a run that may lack nothing.
	Judgement *verdicts.Judgement
	// Accept is what the run may lack.
	Accept verdicts.Accept
	Terminal
}
