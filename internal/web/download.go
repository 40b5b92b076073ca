package web

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/evalrun/evalrun/runner"
)

// fileFormat is a file format of a run or a comparison. ID is its name in the program,
// Name its name for people, and Ext the end of the file's name.
type fileFormat struct{ ID, Name, Ext, Type string }

var (
	runFormats = []fileFormat{
		{"json", "Results (JSON)", ".json", "application/json"},
		{formatPage, "Report (one HTML file)", ".html", "application/octet-stream"},
		{"csv", "Table (CSV)", ".csv", "text/csv; charset=utf-8"},
		{"junit", "JUnit (XML)", ".xml", "application/xml"},
		{"markdown", "Summary (Markdown)", ".md", "text/plain; charset=utf-8"},
		{runner.FormatInspect, "Inspect log", ".eval", "application/octet-stream"},
		{runner.FormatATIF, "Trajectories (ATIF)", ".jsonl", "application/jsonl"},
	}
	comparisonFormats = []fileFormat{
		{"json", "Comparison (JSON)", ".json", "application/json"},
		{formatPage, "Comparison (one HTML file)", ".html", "application/octet-stream"},
		{"markdown", "Comparison (Markdown)", ".md", "text/plain; charset=utf-8"},
	}
)

const formatPage = "html"

// formatOf returns the format that a URL names.
func formatOf(all []fileFormat, r *http.Request) (fileFormat, error) {
	var names []string
	for _, f := range all {
		if f.ID == r.PathValue("format") {
			return f, nil
		}
		names = append(names, f.ID)
	}
	return fileFormat{}, notFound("there is no format %q; there are %s",
		plain(r.PathValue("format")), strings.Join(names, ", "))
}

// runDownloads lists the files of a run. A log of Inspect has one agent.
func runDownloads(runID string, agents []string) (out []download) {
	for _, f := range runFormats {
		u := "/runs/" + runID + "/download/" + f.ID
		if f.ID != runner.FormatInspect || len(agents) == 1 {
			out = append(out, download{f.Name, u})
			continue
		}
		for _, agent := range agents[:min(len(agents), maxAgents)] {
			out = append(out, download{f.Name + ", " + plain(agent), u + "?" + url.Values{"agent": {agent}}.Encode()})
		}
	}
	return out
}

// These are the values of a rollout that one can download.
const valueInput, valueExpected, valueOutput = "input", "expected", "output"

// addDownloads adds the files of a rollout.
func (page *rolloutPage) addDownloads() {
	base := "/runs/" + page.RunID + "/rollouts/" + page.RolloutID + "/download/"
	page.Downloads = append(page.Downloads, download{"Rollout (JSON)", base + "rollout"})
	if len(page.Input.Parts) > 0 {
		page.Downloads = append(page.Downloads, download{"Input", base + valueInput})
	}
	if len(page.Expected.Parts) > 0 {
		page.Downloads = append(page.Downloads, download{"Expected output", base + valueExpected})
	}
	if len(page.Output.Parts) > 0 {
		page.Downloads = append(page.Downloads, download{"Output", base + valueOutput})
	}
	for _, name := range trajectories(page.paths()) {
		page.Downloads = append(page.Downloads, download{"Trajectory, " + name, page.fileURL(name) + "?raw"})
	}
}

// maxAgents is the most agents that get a verdict each.
const maxAgents = 12
