package web

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/runner"
)

// downloadRun sends a run as a file.
func (p *site) downloadRun(w http.ResponseWriter, r *http.Request) error {
	run, found, err := p.named(w, r)
	if !found {
		return err
	}
	format, err := formatOf(runFormats, r)
	if err != nil {
		return err
	}
	var out bytes.Buffer // it holds the whole file, so that an error does not send half of one
	err = p.o.Service.Report(r.Context(), run.ID, func(run *runner.Report) error {
		out.Reset() // it may be read again
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

// downloadRollout sends a rollout with all that the results document has of it.
func (p *site) downloadRollout(w http.ResponseWriter, r *http.Request) error {
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

// download sends a comparison as a file.
func (p *comparePages) download(w http.ResponseWriter, r *http.Request) error {
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
	attachment(w, fmt.Sprintf("%s-%s%s", shortID(page.Doc.A.RunID), shortID(page.Doc.B.RunID), format.Ext),
		format.Type, out.Bytes())
	return nil
}
