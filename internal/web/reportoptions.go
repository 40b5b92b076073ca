package web

import (
	"fmt"
	"unicode/utf8"
)

// ReportOptions say what a report has.
type ReportOptions struct {
	// Full leaves values whole. FailedOnly has details only of rollouts that have not passed, or in which
	// an evaluator failed.
	Full, FailedOnly bool
	// RedactIO leaves out what the agents were given and have made, and what evaluators say of it.
	RedactIO bool
	// Missing says what the source of the report does not have; empty if it has everything.
	Missing string
}

// cut leaves the beginning of a text that is too long.
func (o ReportOptions) cut(text string) string {
	if o.Full || len(text) <= reportValue {
		return text
	}
	at := reportValue
	for at > 0 && !utf8.RuneStart(text[at]) {
		at--
	}
	return fmt.Sprintf("%s\n… and %d bytes more (--full has them)", text[:at], len(text)-at)
}

// The limits of a report: a value is cut after so many bytes, and so many rollouts share a block of
// details.
const (
	reportValue = 4 << 10
	reportBlock = 100
)
