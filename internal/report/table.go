package report

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/schemas"
)

// The limits of the table at the end of a run: rollouts, and characters of a name and of a reason.
const (
	tableRows   = 50
	nameWidth   = 60
	reasonWidth = 160
)

// WriteTable writes what people want to see at the end of a run: one line for each rollout (of a
// large run only for those that did not pass), the statistics, and how each suspended rollout would
// be resumed. command may be nil.
func (r *Report) WriteTable(w io.Writer, command Command) error {
	c, err := r.census()
	if err != nil {
		return err
	}
	out := &lines{w: w}
	if err := r.tableOfRollouts(out, c); err != nil {
		return err
	}
	r.tableOfEvaluators(out)
	if selected := r.selected(); selected != "" {
		out.printf("%s\n", shorten(selected, 2*reasonWidth))
	}
	out.printf("%s; %s%s\n", c, r.formatScores(), r.missing())
	r.gates().text(out)
	if n := c.verdicts[verdict(schemas.StateSuspended)]; n > 0 && command != nil {
		out.printf("\nWaiting; to go on:\n")
		if err := r.commands(out, c, n, command); err != nil {
			return err
		}
	}
	return out.err
}

func (r *Report) tableOfRollouts(out *lines, c census) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	all := c.total <= tableRows
	shown, wanted := 0, 0
	if err := r.Rollouts(func(one *schemas.Rollout) error {
		v := r.verdict(one)
		told := v != passed || EvaluatorFailed(one)
		if !all && !told {
			return nil
		}
		wanted++
		if shown == tableRows {
			return nil
		}
		shown++
		why := ""
		if told {
			why = shorten(reason(one), reasonWidth)
		}
		_, err := fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", v, formatScore(one.Score), shorten(c.label(one), nameWidth), formatDuration(milliseconds(one.Clocks.WorkingMs)), why)
		return err
	}); err != nil {
		return err
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if wanted > shown {
		out.printf("… and %d more\n", wanted-shown)
	}
	if shown > 0 {
		out.printf("\n")
	}
	return nil
}

func (r *Report) tableOfEvaluators(out *lines) {
	head, rows := r.summaryTable(func(name string) string { return shorten(redact.Line(name), nameWidth) })
	if rows == nil {
		return
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{head}, rows...) {
		_, _ = fmt.Fprintln(table, strings.Join(row, "\t")) // out keeps the error
	}
	_ = table.Flush()
	for _, sentence := range r.epochSentences() {
		out.printf("%s\n", sentence)
	}
	out.printf("\n")
}

// commands prints how each of n suspended rollouts would be resumed.
func (r *Report) commands(out *lines, c census, n int, command Command) error {
	shown := 0
	if err := r.Rollouts(func(one *schemas.Rollout) error {
		if one.Status != schemas.StateSuspended || shown == tableRows {
			return nil
		}
		shown++
		out.printf("  %s, %s\n    %s\n", shorten(c.label(one), nameWidth), shorten(waitingFor(one), reasonWidth), redact.Line(command(one)))
		return out.err
	}); err != nil {
		return err
	}
	if n > shown {
		out.printf("… and %d more\n", n-shown)
	}
	return nil
}

// lines writes text without the blanks that a table leaves at the ends of lines. It keeps the first
// error.
type lines struct {
	w   io.Writer
	buf []byte
	err error
}

func (l *lines) printf(format string, args ...any) { _, _ = fmt.Fprintf(l, format, args...) }

func (l *lines) Write(p []byte) (int, error) {
	for _, b := range p {
		if b == '\n' {
			l.buf = append([]byte(strings.TrimRight(string(l.buf), " ")), '\n')
			if l.err == nil {
				_, l.err = l.w.Write(l.buf)
			}
			l.buf = l.buf[:0]
			continue
		}
		l.buf = append(l.buf, b)
	}
	return len(p), l.err
}
