package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/evalrun/evalrun/eval/compare"
	"github.com/evalrun/evalrun/eval/stats"
	"github.com/evalrun/evalrun/eval/summary"
	"github.com/evalrun/evalrun/internal/redact"
)

// comparisonRows is how many evaluations each list of a comparison has at most.
const comparisonRows = 50

// WriteComparison writes a comparison of two runs for people: the gates, what became worse and
// better, and then the figures.
func WriteComparison(w io.Writer, d *compare.Document) error {
	out := &lines{w: w}
	plain := func(s string) string { return shorten(redact.Line(s), nameWidth) }
	out.printf("A: %s\nB: %s\n%s\n", side(d.A), side(d.B), pairsLine(d))
	for _, g := range d.Gates {
		out.printf("%s\n", GateSentence(d, g))
	}
	for _, l := range itemLists(d) {
		out.printf("\n%s\n", l.title)
		table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		for _, one := range l.items {
			_, _ = fmt.Fprintf(table, "  %s\n", strings.Join(itemCells(d, one, plain), "\t")) // out keeps the error
		}
		_ = table.Flush()
		l.more(out)
	}
	out.printf("\n")
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{rowHead}, rowCells(d, plain)...) {
		_, _ = fmt.Fprintln(table, strings.Join(row, "\t"))
	}
	_ = table.Flush()
	out.printf("\n")
	for _, sentence := range comparisonSentences(d) {
		out.printf("%s\n", redact.Line(sentence))
	}
	return out.err
}

// WriteComparisonMarkdown writes the same as Markdown for a pull request.
func WriteComparisonMarkdown(w io.Writer, d *compare.Document) error {
	out := &lines{w: w}
	out.printf("## %s: %s\n\n", markdown(d.B.EvaluationSetName), headline(d))
	out.printf("A: %s  \nB: %s  \n%s\n", markdown(side(d.A)), markdown(side(d.B)), pairsLine(d))
	for _, g := range d.Gates {
		out.printf("\n**%s**\n", markdown(GateSentence(d, g)))
	}
	for _, l := range itemLists(d) {
		out.printf("\n### %s\n\n", l.title)
		tableHead(out, "evaluation", "A", "B", "change", "")
		for _, one := range l.items {
			tableRow(out, itemCells(d, one, markdown)...)
		}
		l.more(out)
	}
	out.printf("\n")
	tableHead(out, rowHead...)
	for _, row := range rowCells(d, markdown) {
		tableRow(out, row...)
	}
	for _, sentence := range comparisonSentences(d) {
		out.printf("\n%s\n", markdown(sentence))
	}
	return out.err
}

// WriteSelfTest writes what the self-test found.
func WriteSelfTest(w io.Writer, d *compare.SelfTestDocument, asMarkdown bool) error {
	out := &lines{w: w}
	kind := "random splits"
	if d.AA.Exact {
		kind = "splits, which are all there are"
	}
	out.printf("%s of %s compared with itself by %s: %d %s of %s\n\n",
		redact.Line(d.A.EvaluationSetName), redact.Line(d.A.RunID), redact.Line(d.By),
		d.AA.Splits, kind, count(d.Evaluations, "evaluation"))
	rows := [][]string{{"test", "finds a difference", "95 % interval", "5 % is allowed"}}
	for _, test := range []struct {
		name string
		f    stats.FalseAlarms
	}{{"sign flip (shown)", d.AA.SignFlip}, {"t test", d.AA.T}} {
		verdict := "no more than that"
		if !test.f.Calibrated {
			verdict = "too often"
		}
		rows = append(rows, []string{test.name, fmt.Sprintf("%.1f %%", 100*test.f.Rate),
			fmt.Sprintf("%.1f %% to %.1f %%", 100*test.f.Low, 100*test.f.High), verdict})
	}
	if asMarkdown {
		tableHead(out, rows[0]...)
		for _, row := range rows[1:] {
			tableRow(out, row...)
		}
		return out.err
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		_, _ = fmt.Fprintln(table, strings.Join(row, "\t"))
	}
	_ = table.Flush()
	return out.err
}

// GateSentence says how a gate of a comparison was judged.
func GateSentence(d *compare.Document, g compare.Gate) string {
	rule := "no worse than A by more than " + decimal(g.Margin)
	if g.Rule == "betterThan" {
		rule = "better than A by more than " + decimal(g.Margin)
	}
	text := fmt.Sprintf("%s: B is %s: %s", redact.Line(g.By), rule, map[summary.GateVerdict]string{
		summary.GatePass: "met", summary.GateFail: "not met", summary.GateUndecided: "undecided"}[g.Verdict])
	if g.Low != nil {
		text += fmt.Sprintf(", the difference lies between %s and %s", signed(*g.Low), signed(*g.High))
	}
	if g.Lost > 0 {
		text += fmt.Sprintf(" whatever was lost of %s", count(g.Lost, unit(d)))
	}
	if g.Lost > 0 && g.Open > 0 {
		text += " and"
	}
	if g.Open > 0 {
		text += fmt.Sprintf(" whatever %s bring that are still open", count(g.Open, unit(d)))
	}
	if g.EvaluationsNeeded != nil {
		text += fmt.Sprintf("; about %s like these would decide it", count(*g.EvaluationsNeeded, "evaluation"))
	}
	return text
}

func side(s compare.Source) string {
	out := fmt.Sprintf("run %s, %s", redact.Line(s.RunID), redact.Line(strings.Join(s.Agents, ", ")))
	if !s.Final {
		out += ", not finished"
	}
	return out
}

// unit names what is compared. With several agents each evaluation is a pair for each of them.
func unit(d *compare.Document) string {
	if len(d.A.Agents) > 1 {
		return "pair"
	}
	return "evaluation"
}

// ofEvaluations counts the evaluations that were compared, and their pairs if these are more.
func ofEvaluations(r *compare.Row) string {
	out := count(r.Evaluations, "evaluation")
	if r.N != r.Evaluations {
		out += fmt.Sprintf(" (%s)", count(r.N, "pair"))
	}
	return out
}

func pairsLine(d *compare.Document) string {
	out := count(d.Pairs, "evaluation") + " compared"
	if agents := len(d.A.Agents); agents > 1 {
		out = fmt.Sprintf("%s compared: %s, %d agents",
			count(d.Pairs, "pair"), count(d.Comparisons[0].Evaluations, "evaluation"), agents)
	}
	if open := openMissing(d); len(d.Missing) > 0 {
		out += fmt.Sprintf("; %d left out because a side has no score", len(d.Missing))
		if open > 0 {
			out += fmt.Sprintf(", %d of them still open", open)
		}
	}
	if n := len(d.OnlyA) + len(d.OnlyB); n > 0 {
		out += fmt.Sprintf("; %d only in A, %d only in B", len(d.OnlyA), len(d.OnlyB))
	}
	return out
}

func openMissing(d *compare.Document) (n int) {
	for _, m := range d.Missing {
		if m.Open {
			n++
		}
	}
	return n
}

// headline is the verdict on the first figure.
func headline(d *compare.Document) string {
	r := d.Comparisons[0]
	return fmt.Sprintf("%s %s (%s)", r.By, r.Verdict, change(r.By, r.Delta))
}

// itemList lists the evaluations that became worse, or better.
type itemList struct {
	title string
	items []compare.Item
	total int
}

func (l itemList) more(out *lines) {
	if more := l.total - len(l.items); more > 0 {
		out.printf("\n… and %d more\n", more)
	}
}

func itemLists(d *compare.Document) (out []itemList) {
	for _, one := range []struct {
		title string
		sign  float64
	}{{"worse in B", -1}, {"better in B", 1}} {
		l := itemList{}
		if d.Comparisons[0].LowerIsBetter {
			one.sign = -one.sign
		}
		for _, item := range d.Items {
			if item.D*one.sign <= 0 {
				continue
			}
			if l.total++; len(l.items) < comparisonRows {
				l.items = append(l.items, item)
			}
		}
		l.title = fmt.Sprintf("%s %s", count(l.total, unit(d)), one.title)
		if l.total > 0 {
			out = append(out, l)
		}
	}
	return out
}

// itemCells returns the id, both scores, the change, and what faulted.
func itemCells(d *compare.Document, one compare.Item, escape func(string) string) []string {
	name := one.EvaluationID
	if one.EvaluationName != "" && one.EvaluationName != one.EvaluationID {
		name += " (" + one.EvaluationName + ")"
	}
	if one.Agent != "" {
		name += " [" + one.Agent + "]"
	}
	var notes []string
	if one.EpochsA > 1 || one.EpochsB > 1 {
		notes = append(notes, fmt.Sprintf("%d and %d epochs", one.EpochsA, one.EpochsB))
	}
	if len(one.FaultsA) > 0 {
		notes = append(notes, "A faulted: "+strings.Join(one.FaultsA, ", "))
	}
	if len(one.FaultsB) > 0 {
		notes = append(notes, "B faulted: "+strings.Join(one.FaultsB, ", "))
	}
	by := d.Comparisons[0].By
	return []string{escape(name), figure(by, one.A, formatScore(&one.A)), figure(by, one.B, formatScore(&one.B)),
		change(by, one.D), escape(strings.Join(notes, "; "))}
}

var rowHead = []string{"figure", "A", "B", "difference (95 % interval)", "p", "adjusted", "verdict"}

func rowCells(d *compare.Document, escape func(string) string) (rows [][]string) {
	for i := range d.Comparisons {
		r := &d.Comparisons[i]
		delta := change(r.By, r.Delta)
		if r.Low != nil {
			delta += fmt.Sprintf(" [%s, %s]", change(r.By, *r.Low), change(r.By, *r.High))
		}
		rows = append(rows, []string{escape(r.By),
			figure(r.By, r.MeanA, strconv.FormatFloat(r.MeanA, 'f', 3, 64)),
			figure(r.By, r.MeanB, strconv.FormatFloat(r.MeanB, 'f', 3, 64)),
			delta, PValue(r.P()), PValue(r.HolmP), string(r.Verdict)})
	}
	return rows
}

// byStudent stands beside intervals of Student's t.
const byStudent = "Intervals of scores are Student's t's, which assume that rare large losses would have been seen"

// comparisonSentences says how far the figures can be trusted, and what else differs.
func comparisonSentences(d *compare.Document) (out []string) {
	if m := len(d.Comparisons); m > 1 {
		out = append(out, fmt.Sprintf(
			"%d comparisons; p-values are adjusted (Holm), except for the first one, which decides.", m))
	}
	out = append(out, ComparisonLimits(d)...)
	if slices.ContainsFunc(d.Comparisons, func(r compare.Row) bool {
		return r.Interval == string(stats.Student) && !r.LowerIsBetter
	}) {
		out = append(out, byStudent+".")
	}
	for _, difference := range d.JudgeDifferences {
		out = append(out, "The difference is not the agents' alone: "+difference+".")
	}
	if len(d.SetDifferences) > 0 {
		out = append(out, "The eval sets differ: "+strings.Join(firstOf(d.SetDifferences, 20), ", ")+".")
	}
	for _, difference := range d.PlanDifferences {
		out = append(out, "Differs: "+difference+".")
	}
	return out
}

// ComparisonLimits says which difference would have been found, and what the missing scores can do.
// If all pairs differ by the same amount there is no smallest detectable difference. If none
// differs, it says which difference is still possible.
func ComparisonLimits(d *compare.Document) (out []string) {
	first := &d.Comparisons[0]
	sentence := ""
	switch {
	case first.MDE != nil && *first.MDE > 0:
		sentence = fmt.Sprintf("With %s, a true difference of %s is detected in %.0f %% of comparisons",
			ofEvaluations(first), figure(first.By, *first.MDE, decimal(*first.MDE)), 100*first.Power)
	case first.Varies() && first.MDE == nil:
		sentence = fmt.Sprintf("With %s, not even a true difference of 1 is detected in %.0f %% of comparisons",
			ofEvaluations(first), 100*first.Power)
	case !first.LowerIsBetter && first.Regressions+first.Improvements == 0 && first.High != nil && *first.High > 0:
		sentence = fmt.Sprintf("No %s differs; with %s, a true difference of %s is still possible",
			unit(d), ofEvaluations(first), decimal(*first.High))
	}
	if sentence != "" {
		if first.EvaluationsNeeded != nil {
			what := "this one"
			if first.Margin != nil {
				what = "one of " + decimal(*first.Margin)
			}
			sentence += fmt.Sprintf("; %s would take about %s", what, count(*first.EvaluationsNeeded, "evaluation"))
		}
		out = append(out, sentence+".")
	}
	if len(d.Missing) > 0 && first.Bounds != nil {
		out = append(out, fmt.Sprintf("With what is missing at its worst for B the difference is %s, at its best %s.",
			signed(first.Bounds[0]), signed(first.Bounds[1])))
	}
	return out
}

func firstOf(all []string, most int) []string {
	if more := len(all) - most; more > 0 {
		return append(append([]string{}, all[:most]...), fmt.Sprintf("and %d more", more))
	}
	return all
}

// Figure writes a value of a figure with three decimals, or as tokens and cost are written.
func Figure(by string, x float64) string { return figure(by, x, strconv.FormatFloat(x, 'f', 3, 64)) }

// figure writes a value of a figure: words, unless the figure is of tokens or cost.
func figure(by string, x float64, words string) string {
	switch by {
	case "tokens":
		return grouped(int64(math.Round(x)))
	case "cost":
		return dollars(x)
	}
	return words
}

// change writes a difference of a figure, with its sign.
func change(by string, x float64) string {
	switch words := figure(by, math.Abs(x), ""); {
	case words == "":
		return signed(x)
	case strings.Trim(words, "$0.") == "":
		return words
	case x < 0:
		return "-" + words
	default:
		return "+" + words
	}
}

// signed writes a difference of scores, with its sign.
func signed(x float64) string {
	if text := decimal(x); x < 0 || text == "0" {
		return text
	}
	return "+" + decimal(x)
}

func decimal(x float64) string {
	x = round(x)
	if x == 0 {
		return "0"
	}
	return strconv.FormatFloat(x, 'f', -1, 64)
}

// PValue writes a p-value with three decimals. It never writes 0.
func PValue(p float64) string {
	if p < 0.001 {
		return "< 0.001"
	}
	return strconv.FormatFloat(p, 'f', 3, 64)
}
