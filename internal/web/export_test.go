package web

import (
	"github.com/evalrun/evalrun/runner"
	"github.com/evalrun/evalrun/schemas"
)

// For tests outside of the package, which read pages as a browser does.
var (
	FormatMs       = formatMs
	FormatDuration = formatDuration
	Statuses       = statuses
)

// TrajectoryText is the trajectory of a rollout as a report has it.
func TrajectoryText(o ReportOptions, r *runner.Report, one *schemas.Rollout) string {
	return o.trajectory(r, one)
}
