package report

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/evalrun/evalrun/eval/calibrate"
	"github.com/evalrun/evalrun/eval/stats"
	"github.com/evalrun/evalrun/eval/summary"
	"github.com/evalrun/evalrun/internal/redact"
)

// WriteCalibration writes how far judges agree with people, and where they do not.
func WriteCalibration(w io.Writer, d *calibrate.Document, asMarkdown bool) error {
	out := &calibration{lines: &lines{w: w}, d: d, markdown: asMarkdown}
	out.title()
	for _, e := range d.Evaluators {
		out.evaluator(e)
	}
	for _, g := range d.Gates {
		out.sentence(CalibrationGateSentence(g))
	}
	if d.EvaluatorsAlpha != nil {
		out.sentence("the evaluators among each other: alpha " +
			formatCoefficient(stats.Coefficient{Value: d.EvaluatorsAlpha}))
	}
	return out.err
}

type calibration struct {
	*lines
	d        *calibrate.Document
	markdown bool
}

func (c *calibration) escape(s string) string {
	if c.markdown {
		return markdown(s)
	}
	return redact.Line(s)
}

func (c *calibration) heading(text string) {
	if c.markdown {
		c.printf("## %s\n\n", text)
		return
	}
	c.printf("%s\n", text)
}

// sentence writes one sentence, in Markdown as a paragraph.
func (c *calibration) sentence(text string) {
	if c.markdown {
		c.printf("%s\n\n", markdown(text))
		return
	}
	c.printf("%s\n", redact.Line(text))
}

func (c *calibration) table(rows [][]string) {
	if c.markdown {
		tableHead(c.lines, rows[0]...)
		for _, row := range rows[1:] {
			tableRow(c.lines, row...)
		}
		c.printf("\n")
		return
	}
	table := tabwriter.NewWriter(c.lines, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		_, _ = fmt.Fprintln(table, "  "+strings.Join(row, "\t")) // lines keeps the error
	}
	_ = table.Flush()
}

// title says whose labels these are, and which of them are left out.
func (c *calibration) title() {
	d := c.d
	c.heading(fmt.Sprintf("%s, run %s: %s of %s", c.escape(d.EvaluationSetName), c.escape(d.RunID),
		count(d.Labels, "label"), count(d.Labelled, "rollout")))
	if d.PeopleAlpha != nil {
		c.sentence("the people among each other: alpha " + formatCoefficient(stats.Coefficient{Value: d.PeopleAlpha}))
	}
	if d.Tied > 0 {
		c.sentence(fmt.Sprintf("%s left out, because as many people are for as against", count(d.Tied, "rollout")))
	}
	if len(d.Unknown) == 0 {
		return
	}
	c.sentence(fmt.Sprintf("%s left out, because the run has nothing that they are of:", count(len(d.Unknown), "label")))
	rows := [][]string{{"line", "evaluation", "why"}}
	for _, u := range d.Unknown[:min(len(d.Unknown), comparisonRows)] {
		name := c.escape(u.EvaluationID)
		if u.Agent != "" {
			name += ", agent " + c.escape(u.Agent)
		}
		if u.Epoch > 0 {
			name += fmt.Sprintf(", epoch %d", u.Epoch)
		}
		rows = append(rows, []string{fmt.Sprint(u.Line), name, c.escape(u.Reason)})
	}
	c.table(rows)
	if more := len(d.Unknown) - comparisonRows; more > 0 {
		c.sentence(fmt.Sprintf("… and %d more", more))
	}
}

func (c *calibration) evaluator(e calibrate.Evaluator) {
	if c.markdown {
		c.printf("### %s\n\n", markdown(e.EvaluatorID))
	} else {
		c.printf("\n%s\n", redact.Line(e.EvaluatorID))
	}
	if e.Unscored > 0 {
		c.sentence(fmt.Sprintf("%s labelled but not scored", count(e.Unscored, "rollout")))
	}
	if e.N == 0 {
		return
	}
	m := e.Confusion
	c.table([][]string{{"", "people: pass", "people: fail"},
		{"judge: pass", fmt.Sprint(m.TruePositives), fmt.Sprint(m.FalsePositives)},
		{"judge: fail", fmt.Sprint(m.FalseNegatives), fmt.Sprint(m.TrueNegatives)}})
	rows := [][]string{{"", "value (95 % interval)"}, {"kappa", formatCoefficient(e.Kappa)}}
	if !c.d.Binary {
		rows = append(rows, []string{"weighted kappa", formatCoefficient(e.WeightedKappa)})
	}
	rows = append(rows, []string{"Krippendorff's alpha", formatCoefficient(e.Alpha)},
		[]string{"agreement", formatPassRate(e.Agreement)},
		[]string{"passes what people pass", formatPassRate(e.Sensitivity)},
		[]string{"fails what people fail", formatPassRate(e.Specificity)},
		[]string{"scores higher than people by", signed(*e.Bias)})
	if r := e.Corrected; r != nil {
		rows = append(rows, []string{"pass rate of the run, corrected",
			fmt.Sprintf("%.3f [%.3f, %.3f], by the judge %.3f", r.Rate, r.Low, r.High, r.Observed)})
	} else {
		rows = append(rows, []string{"pass rate of the run, corrected", "none: the judge is hardly better than chance"})
	}
	c.table(rows)
	if len(e.Disagreements) == 0 {
		return
	}
	c.sentence(count(len(e.Disagreements), "disagreement"))
	rows = [][]string{{"evaluation", "people", "judge", "rollout"}}
	for _, one := range e.Disagreements[:min(len(e.Disagreements), comparisonRows)] {
		rows = append(rows, []string{c.escape(shorten(one.EvaluationID, nameWidth)),
			decimal(one.People), decimal(one.Judge), one.RolloutID})
	}
	c.table(rows)
	if more := len(e.Disagreements) - comparisonRows; more > 0 {
		c.sentence(fmt.Sprintf("… and %d more", more))
	}
}

// formatCoefficient is a coefficient with its interval.
func formatCoefficient(c stats.Coefficient) string {
	switch {
	case c.Value == nil:
		return "not known: nothing differs"
	case c.Low == nil:
		return fmt.Sprintf("%.3f", *c.Value)
	}
	return fmt.Sprintf("%.3f [%.3f, %.3f]", *c.Value, *c.Low, *c.High)
}

// CalibrationGateSentence says how a gate of a calibration was judged.
func CalibrationGateSentence(g calibrate.Gate) string {
	name := "kappa"
	if g.What == "weightedKappa" {
		name = "weighted kappa"
	}
	return fmt.Sprintf("%s: %s of at least %s: %s, it is %s", redact.Line(g.EvaluatorID), name, decimal(g.Min),
		map[summary.GateVerdict]string{
			summary.GatePass: "met", summary.GateFail: "not met", summary.GateUndecided: "undecided",
		}[g.Verdict], formatCoefficient(g.Coefficient))
}
