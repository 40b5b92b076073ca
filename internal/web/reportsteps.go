package web

import (
	"fmt"
	"path"
	"strings"

	"github.com/evalrun/evalrun/internal/record"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/report"
	"github.com/evalrun/evalrun/runner"
	"github.com/evalrun/evalrun/schemas"
)

// reportSteps is the most steps of a trajectory in a report, half of them its first and half its
// last.
const reportSteps = 200

// trajectory returns what the agent of a rollout said and called, as text. It is empty if the agent
// left nothing, or if the store is not there.
func (o ReportOptions) trajectory(r *runner.Report, one *schemas.Rollout) string {
	dir := r.RolloutDir(one.RolloutID)
	if dir == "" {
		return ""
	}
	prefix := path.Join("runs", r.Head().RunID, "rollouts", one.RolloutID) + "/"
	steps, more := said(report.Folder{Dir: dir, Redact: redact.New(nil)}, func(yield func(string) bool) {
		for _, log := range one.Logs {
			if name, ok := strings.CutPrefix(log, prefix); ok && path.Base(name) == record.FileTrajectory && !yield(name) {
				return
			}
		}
	})
	var b strings.Builder
	for i, s := range steps {
		if left := len(steps) - reportSteps; left > 0 && !o.Full && i >= reportSteps/2 && i < reportSteps/2+left {
			if i == reportSteps/2 {
				fmt.Fprintf(&b, "… %d steps more (--full has them)\n", left)
			}
			continue
		}
		o.writeStep(&b, s)
	}
	if more {
		b.WriteString("… and more, which was not read\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// writeStep writes a step as a line. The rest of it stands below if it does not fit.
func (o ReportOptions) writeStep(b *strings.Builder, s step) {
	fmt.Fprintf(b, "%s  %s", s.At.UTC().Format("15:04:05"), s.Who)
	if s.call == nil {
		text := o.cut(s.said)
		if text == "" {
			for _, p := range s.Text {
				text += strings.TrimSpace(p.Name + " " + p.Text)
			}
		}
		fmt.Fprintf(b, ": %s\n", hanging(text))
		return
	}
	fmt.Fprintf(b, " (%s) %s\n", s.Status, oneLine(s.call.Input))
	for _, e := range s.Edits {
		fmt.Fprintf(b, "          edits %s, +%d −%d\n", e.Path, e.Added, e.Removed)
	}
	if text := strings.TrimSpace(s.call.Text()); text != "" && !isNothing(text) {
		fmt.Fprintf(b, "          → %s\n", hanging(o.cut(readable(text))))
	}
}

// hanging indents the further lines of a text below its first in the text of a trajectory.
func hanging(text string) string { return strings.ReplaceAll(text, "\n", "\n            ") }
