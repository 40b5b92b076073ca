package web

// For tests outside of the package, which read pages as a browser does.
var (
	FormatMs       = formatMs
	FormatDuration = formatDuration
	Statuses       = statuses
)
