package web

import (
	"compress/flate"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/evalrun/evalrun/internal/report"
	"github.com/evalrun/evalrun/runner"
	"github.com/evalrun/evalrun/schemas"
)

// LargeReport is the size of a report in bytes from which on people look for parts to leave out.
const LargeReport = 20 << 20

// WriteReport writes a run as one HTML file that needs nothing else: no server, no network, no
// other file. The same report gives the same bytes.
func WriteReport(w io.Writer, r *runner.Report, o ReportOptions) error {
	run, err := newOverview(r)
	if err != nil {
		return err
	}
	if o.RedactIO {
		for i := range run.rows {
			run.rows[i].Reason = ""
		}
		run.addCauses()
	}
	c := newColumns(run)
	c.Base = "#r/"
	for i, id := range c.Columns.ID {
		c.Columns.ID[i] = reportID(id)
	}
	waiting, err := o.waiting(r, run)
	if err != nil {
		return err
	}
	out := &reportWriter{w: w}
	out.page(run, waiting, o)
	out.block("columns", struct {
		*columns
		Block int `json:"block"`
	}{c, reportBlock})
	var details []*reportDetail
	n := 0
	if err := r.Rollouts(func(one *schemas.Rollout) error {
		var d *reportDetail
		if !o.FailedOnly || run.rows[n].Status != "passed" || run.rows[n].bad() {
			d = o.detail(r, one)
		}
		n++
		if details = append(details, d); len(details) == reportBlock {
			out.block(fmt.Sprintf("d%d", n/reportBlock-1), details)
			details = nil
		}
		return out.err
	}); err != nil {
		return err
	}
	if len(details) > 0 {
		out.block(fmt.Sprintf("d%d", n/reportBlock), details)
	}
	out.end(reportScript())
	return out.err
}

// waiting lists what the rollouts of a run wait for, with a count of each.
func (o ReportOptions) waiting(r *runner.Report, run *overview) (out []string, err error) {
	if run.head.Final {
		return nil, nil
	}
	var waits waitGroups
	err = r.Rollouts(func(one *schemas.Rollout) error {
		for _, t := range report.TriggersOf(one) {
			name := ""
			if !o.RedactIO {
				name = nameOfWait(t.Type, t.InterruptID, t.Payload)
			}
			g := waits.add(t.Type, name, one.RolloutID)
			g.Deadline = earlier(g.Deadline, t.Deadline)
		}
		return nil
	})
	for _, g := range waits.all {
		text := strings.TrimSpace(kindOf(g.Type)+" "+g.Name) + ": " + counted(g.N, "rollout")
		if !g.Deadline.IsZero() {
			text += ", deadline " + g.Deadline.UTC().Format("2006-01-02 15:04:05 UTC")
		}
		out = append(out, text)
	}
	return out, err
}

// reportID names a rollout in a report: the end of its id tells it from all others.
func reportID(id string) string { return id[max(0, len(id)-12):] }

func reportScript() string {
	return "\n" + string(assets()["report.js"].data) + "\n" + string(assets()["app.js"].data) + "\n"
}

// block writes a value as base64 of raw deflate of JSON. Nothing in base64 can end the element.
func (w *reportWriter) block(id string, value any) {
	w.write(`<script type="application/octet-stream" id="` + id + `">`)
	if w.err != nil {
		return
	}
	base := base64.NewEncoder(base64.StdEncoding, w.w)
	z, err := flate.NewWriter(base, flate.BestCompression)
	if err != nil {
		w.err = err
		return
	}
	if w.err = json.NewEncoder(z).Encode(value); w.err == nil {
		w.err = z.Close()
	}
	if w.err == nil {
		w.err = base.Close()
	}
	w.write("</script>\n")
}

// These are links of a page of the server. In a report they lead to places in the file instead.
var (
	rolloutLink = regexp.MustCompile(`href="/runs/[^"/]*/rollouts/([^"?]*)(\?[^"]*)?"`)
	liveMark    = regexp.MustCompile(`<span id="live".*?</span> <span[^>]*>.*?</span></span>`)
	stateLink   = regexp.MustCompile(`href="\?([^"#]*)(#rl)?"`)
)

// page writes the page of the run with its first rollouts, up to the data.
func (w *reportWriter) page(run *overview, waiting []string, o ReportOptions) {
	page := newRunPage(run, readFilter(nil))
	page.Commands, page.Waiting = nil, waiting
	body, err := bodyOf("run.html", page)
	if err != nil {
		w.err = err
		return
	}
	body = rolloutLink.ReplaceAllStringFunc(body, func(link string) string {
		return `href="#r/` + reportID(rolloutLink.FindStringSubmatch(link)[1]) + `"`
	})
	body = stateLink.ReplaceAllString(body, `href="#?$1"`)
	body = liveMark.ReplaceAllString(body, map[bool]string{true: "final", false: "not final"}[run.head.Final])
	body = strings.ReplaceAll(body, `<noscript><button>Apply</button></noscript>`, "")
	body = strings.Replace(body, `<h2 id="rl">Rollouts</h2>`, `<h2 id="rl">Rollouts</h2>`+withoutScript(page.List), 1)
	note := "This file contains inputs and outputs of the agents."
	if o.RedactIO {
		note = "What the agents were given and have made was left out of this file."
	}
	if o.FailedOnly {
		note += " It has details only of rollouts that have not passed, or in which an evaluator failed."
	}
	if o.Missing != "" {
		note += " " + o.Missing
	}
	w.body(page.Title, alone(body, note), reportScript())
	w.write(`<dialog id="detail" aria-label="Rollout"><button type="button">Close</button><div></div></dialog>` + "\n")
}

// withoutScript says what a report lacks for a reader without JavaScript.
func withoutScript(l list) string {
	what := "the details of rollouts cannot be opened, and the list cannot be filtered"
	if l.Of > l.To {
		noun := "rollout"
		if l.Filter.View == "matrix" {
			noun = "evaluation"
		}
		what = fmt.Sprintf("only the first %d of %s are shown, ", l.To, counted(l.Of, noun)) + what
	}
	return `<noscript><p class="warn">Without JavaScript ` + what + `. The file needs no network for it.</p></noscript>`
}

// reportDetail is the content of a report for one rollout besides its row.
type reportDetail struct {
	ID         string            `json:"id"`
	Why        string            `json:"why,omitempty"`
	Evaluators []reportEvaluator `json:"evaluators,omitempty"`
	// Texts are headings with the text below each.
	Texts [][2]string `json:"texts,omitempty"`
}

type reportEvaluator struct {
	Name  string `json:"name"`
	Score string `json:"score"`
	Said  string `json:"said,omitempty"`
}

func (o ReportOptions) detail(r *runner.Report, one *schemas.Rollout) *reportDetail {
	d := &reportDetail{ID: one.RolloutID}
	for _, e := range report.WorstFirst(one.EvaluationRunResults) {
		v := reportEvaluator{Name: e.EvaluatorName, Score: formatScore(e.Result.Score)}
		if !o.RedactIO {
			v.Said = o.cut(saidBy(e.Result))
		}
		d.Evaluators = append(d.Evaluators, v)
	}
	c := one.Clocks
	d.text("Clocks", fmt.Sprintf("working %s, waiting %s, queued %s, evaluating %s",
		formatMs(c.WorkingMs), formatMs(c.WaitingMs), formatMs(c.QueuedMs), formatMs(c.EvaluatingMs)))
	for _, resumed := range one.ResumedBy {
		for _, a := range resumed.Answers {
			d.text(fmt.Sprintf("Answered before segment %d", resumed.Segment), fmt.Sprintf("%s by %s, at %s",
				a.Status, deliverer(a.By, a.Person), a.At.UTC().Format("2006-01-02 15:04:05 UTC")))
		}
	}
	if o.RedactIO {
		if one.Error != nil {
			d.Why = one.Error.Category
		}
		return d
	}
	d.Why = o.cut(r.Explain(one))
	d.text("Input", o.value(one.Inputs))
	d.text("Expected output", o.value(one.ExpectedOutput))
	d.text("Criteria", o.criteria(one.Criteria))
	if one.AgentExecutionOutput != nil {
		d.text("Output", o.value(one.AgentExecutionOutput.Result.Output))
	}
	d.text("Trajectory", o.trajectory(r, one))
	for _, t := range report.TriggersOf(one) {
		d.text("Waits for the "+kindOf(t.Type)+" "+t.ItemKey, o.value(t.Payload))
	}
	return d
}

// saidBy returns what an evaluator says besides its score.
func saidBy(r schemas.EvaluationResult) string {
	switch {
	case r.NotRun != "":
		return "not run: " + r.NotRun
	case r.Error != "":
		return r.Error
	case r.Judge != nil:
		return votesOf(r).String()
	case r.Comparison != nil:
		return fmt.Sprintf("expected (%s) %s, got %s", r.Comparison.Relation,
			readable(string(r.Comparison.Expected)), readable(string(r.Comparison.Actual)))
	case len(r.Details) > 0:
		return inWords(r.Details)
	}
	return ""
}

func (d *reportDetail) text(title, text string) {
	if text != "" {
		d.Texts = append(d.Texts, [2]string{title, text})
	}
}

func (o ReportOptions) value(raw json.RawMessage) string {
	if text := strings.TrimSpace(string(raw)); text == "" || text == "null" {
		return ""
	}
	return o.cut(textOf(raw))
}

// criteria returns the criteria of the evaluators.
func (o ReportOptions) criteria(all map[string]json.RawMessage) string {
	said := map[string]json.RawMessage{}
	for id, one := range all {
		if text := strings.TrimSpace(string(one)); text != "null" && text != "{}" {
			said[id] = one
		}
	}
	raw, err := json.Marshal(said)
	if len(said) == 0 || err != nil {
		return "" // the value came from JSON
	}
	return o.value(raw)
}
