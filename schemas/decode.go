package schemas

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// VersionError says that a results document is of a version that this package does not read.
type VersionError struct{ Version string }

func (e *VersionError) Error() string {
	if e.Version == "" {
		return "not a results document: it has no schemaVersion"
	}
	return fmt.Sprintf("the results document has the schema version %q; this program reads version %s", e.Version, Version)
}

// Decode reads a results document. Its error is a [*VersionError] if the document has another major
// version than Version; evalrun report --format json writes an old one anew.
func Decode(r io.Reader) (*Results, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	var version struct {
		SchemaVersion string `json:"schemaVersion"`
	}
	if err := json.Unmarshal(data, &version); err != nil {
		return nil, fmt.Errorf("not a results document: %w", err)
	}
	major := func(version string) string {
		major, _, _ := strings.Cut(version, ".")
		return major
	}
	if major(version.SchemaVersion) != major(Version) {
		return nil, &VersionError{version.SchemaVersion}
	}
	out := new(Results)
	if err := json.Unmarshal(data, out); err != nil {
		return nil, fmt.Errorf("the results document: %w", err)
	}
	return out, nil
}

// Failed returns the rollouts that have faulted, or whose score is too low to pass. Rollouts that
// wait, were cancelled or have no score are not among them.
func (r *Results) Failed() []*Rollout {
	pass := 1.0
	if r.Statistics != nil {
		pass = r.Statistics.Thresholds.Pass
	}
	var out []*Rollout
	for i := range r.EvaluationSetResults {
		if one := &r.EvaluationSetResults[i]; one.Failed(pass) {
			out = append(out, one)
		}
	}
	return out
}

// Tolerance is how far a score may be below the least that passes, because it may be a rounded mean
// of perfect scores.
const Tolerance = 1e-9

// Failed reports whether the rollout has faulted, or has a score below pass.
func (r *Rollout) Failed(pass float64) bool {
	switch r.Status {
	case StateFaulted:
		return true
	case StateCompleted:
		return r.Score != nil && *r.Score < pass-Tolerance
	}
	return false
}
