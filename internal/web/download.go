package web

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/report"
	"github.com/evalrun/evalrun/internal/service"
	"github.com/evalrun/evalrun/runner"
)

// download is something of a page that can be had as a file.
type download struct{ Name, URL string }

// fileFormat is a form in which a run or a comparison can be had as a file: ID is how the program calls
// it, Name how a person does, and Ext the end of the file's name.
type fileFormat struct{ ID, Name, Ext, Type string }

var (
	runFormats = []fileFormat{{"json", "Results (JSON)", ".json", "application/json"}, {formatPage, "Report (one HTML file)", ".html", "application/octet-stream"}, {"csv", "Table (CSV)", ".csv", "text/csv; charset=utf-8"},
		{"junit", "JUnit (XML)", ".xml", "application/xml"}, {"markdown", "Summary (Markdown)", ".md", "text/plain; charset=utf-8"}, {runner.FormatInspect, "Inspect log", ".eval", "application/octet-stream"}, {runner.FormatATIF, "Trajectories (ATIF)", ".jsonl", "application/jsonl"}}
	comparisonFormats = []fileFormat{{"json", "Comparison (JSON)", ".json", "application/json"}, {formatPage, "Comparison (one HTML file)", ".html", "application/octet-stream"}, {"markdown", "Comparison (Markdown)", ".md", "text/plain; charset=utf-8"}}
)

const formatPage = "html"

// formatOf is the format that a URL names.
func formatOf(all []fileFormat, r *http.Request) (fileFormat, error) {
	var names []string
	for _, f := range all {
		if f.ID == r.PathValue("format") {
			return f, nil
		}
		names = append(names, f.ID)
	}
	return fileFormat{}, notFound("there is no format %q; there are %s", plain(r.PathValue("format")), strings.Join(names, ", "))
}

// attachment sends a file that a browser keeps and does not show.
func attachment(w http.ResponseWriter, name, typ string, data []byte) {
	h := w.Header()
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'")
	h.Set("Content-Type", typ)
	h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": strings.ToValidUTF8(plain(name), "_")}))
	_, _ = w.Write(data) // a reader who is gone is told nothing
}

// downloadRun sends a run as a file.
func (p *Pages) downloadRun(w http.ResponseWriter, r *http.Request) error {
	run, found, err := p.named(w, r)
	if !found {
		return err
	}
	format, err := formatOf(runFormats, r)
	if err != nil {
		return err
	}
	var out bytes.Buffer // whole, so that an error does not leave half of a file
	err = p.o.Service.Report(r.Context(), run.ID, func(run *runner.Report) error {
		if format.ID == formatPage {
			return WriteReport(&out, run, ReportOptions{})
		}
		run.Agent = r.URL.Query().Get("agent")
		return run.Write(&out, format.ID)
	})
	if err != nil {
		return err
	}
	attachment(w, run.ID+format.Ext, format.Type, out.Bytes())
	return nil
}

// runDownloads are the files of a run. A log of Inspect has one agent.
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

// The values of a rollout that can be had as files.
const valueInput, valueExpected, valueOutput = "input", "expected", "output"

// downloadRollout sends everything that is known of a rollout, as the results document has it.
func (p *Pages) downloadRollout(w http.ResponseWriter, r *http.Request) error {
	run, found, err := p.named(w, r)
	if !found {
		return err
	}
	d, err := p.o.Service.Rollout(r.Context(), run.ID, r.PathValue("rollout"))
	if err != nil {
		return err
	}
	var value json.RawMessage
	name := r.PathValue("value")
	switch name {
	case "rollout":
		value, err = jsonobj.Marshal(d.Rollout)
	case valueInput:
		value = d.Inputs
	case valueExpected:
		value = d.ExpectedOutput
	case valueOutput:
		if d.AgentExecutionOutput != nil {
			value = d.AgentExecutionOutput.Result.Output
		}
	default:
		err = notFound("there is nothing at this path")
	}
	if err != nil {
		return err
	}
	if len(value) == 0 || string(value) == "null" {
		return notFound("the rollout has no %s", name)
	}
	if text, isText := jsonobj.Unquote(value); isText {
		attachment(w, name+"-"+shortID(d.RolloutID)+".txt", "text/plain; charset=utf-8", []byte(text))
		return nil
	}
	var out bytes.Buffer
	if json.Indent(&out, value, "", "  ") != nil {
		out.Reset()
		out.Write(value)
	}
	attachment(w, name+"-"+shortID(d.RolloutID)+".json", "application/json", append(out.Bytes(), '\n'))
	return nil
}

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

// downloadComparison sends a comparison as a file.
func (p *Pages) downloadComparison(w http.ResponseWriter, r *http.Request) error {
	format, err := formatOf(comparisonFormats, r)
	if err != nil {
		return err
	}
	page := newComparePage(r.URL.Query())
	if err := p.addComparison(r.Context(), page); err != nil {
		return &pageError{http.StatusUnprocessableEntity, p.withoutFolder(err.Error())}
	}
	if page.Doc == nil {
		return &pageError{http.StatusUnprocessableEntity, page.Problem}
	}
	var out bytes.Buffer
	write := func(w io.Writer) error { return runner.WriteComparison(w, page.Doc, format.ID) }
	if format.ID == formatPage {
		write = func(w io.Writer) error { return WriteComparison(w, page.Doc) }
	}
	if err := write(&out); err != nil {
		return err
	}
	attachment(w, fmt.Sprintf("%s-%s%s", shortID(page.Doc.A.RunID), shortID(page.Doc.B.RunID), format.Ext), format.Type, out.Bytes())
	return nil
}

// again is how a run, or an evaluation of it, is run once more.
type again struct {
	service.Origin
	Commit string
	// Command is given in that folder.
	Command string
}

// Lines are what one types, from the root of the checkout or from the folder that has the store.
func (a again) Lines() string {
	if a.Folder == "" || a.Folder == "." {
		return a.Command
	}
	folder := a.Folder
	if strings.HasPrefix(folder, "-") {
		folder = "./" + folder
	}
	return "cd " + report.ShellWords([]string{folder}) + "\n" + a.Command
}

// again says how what a command has made is made once more; nil if the run was not started by one.
func (p *Pages) again(ctx context.Context, o *overview, command string) (*again, error) {
	if command == "" {
		return nil, nil
	}
	origin, err := p.origins.of(o.head.RunID, func() (service.Origin, error) { return p.o.Service.Origin(ctx, o.head.RunID) })
	if err != nil {
		return nil, err
	}
	return &again{origin, o.head.GitCommit, command}, nil
}
