package report

import (
	"encoding/json"

	"github.com/evalrun/evalrun/internal/redact"
)

// failedChecks returns the reasons of the checks that have not passed, nil if the details are not those
// of checks.
func failedChecks(details json.RawMessage) (out []string) {
	var found struct {
		Checks []struct {
			Passed bool   `json:"passed"`
			Reason string `json:"reason"`
		} `json:"checks"`
	}
	if json.Unmarshal(details, &found) != nil { // another form
		return nil
	}
	for _, one := range found.Checks {
		if !one.Passed && one.Reason != "" {
			out = append(out, redact.Line(middle(one.Reason, longWidth)))
		}
	}
	return out
}
