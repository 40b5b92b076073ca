package web

import (
	"fmt"
	"unicode/utf8"
)

// ReportOptions choose the content of a report.
type ReportOptions struct {
	// Full leaves values whole. FailedOnly limits details to rollouts that have not passed, or in
	// which an evaluator failed.
	Full, FailedOnly bool
	// RedactIO leaves out the inputs and outputs of the agents, and what evaluators say of them.
	RedactIO bool
	// Missing says what the source of the report lacks; empty if it has everything.
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

// The limits of a report: the bytes after which a value is cut, and the rollouts that share a block
// of details.
const (
	reportValue = 4 << 10
	reportBlock = 100
)
