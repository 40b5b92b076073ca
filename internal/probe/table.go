package probe

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/evalrun/evalrun/internal/redact"
)

// maxDetail is how much of a detail the table shows; the report has all of it.
const maxDetail = 160

// WriteTable writes the report for people: each check, and indented below it its facts.
func (r *Report) WriteTable(w io.Writer) error {
	took := time.Duration(r.TookMs) * time.Millisecond
	if _, err := fmt.Fprintf(w, "%s: %s %s, isolation %s, probed in %v\n\n", redact.Line(r.Agent.Entry),
		redact.Line(r.Agent.Name), redact.Line(r.Agent.Version),
		r.Isolation, took.Round(100*time.Millisecond)); err != nil {
		return err
	}
	rows := [][4]string{{"CHECK", "VERDICT", "TIME", "DETAIL"}}
	for _, c := range r.Checks {
		rows = append(rows, [4]string{c.Name, line(c.Verdict), seconds(&c.TookMs), line(c.Detail)})
		for _, f := range c.Facts {
			rows = append(rows, [4]string{"  " + f.Name, line(f.Verdict), seconds(f.TookMs), line(f.Detail)})
		}
	}
	var widest [3]int
	for _, cells := range rows {
		for i := range widest {
			widest[i] = max(widest[i], utf8.RuneCountInString(cells[i]))
		}
	}
	for _, c := range rows {
		text := fmt.Sprintf("%-*s  %-*s  %*s  %s", widest[0], c[0], widest[1], c[1], widest[2], c[2], c[3])
		if _, err := fmt.Fprintln(w, strings.TrimRight(text, " ")); err != nil {
			return err
		}
	}
	return nil
}

// line returns a text as it is shown on one line, shortened if it is long.
func line(s string) string {
	if s = redact.Line(s); len(s) > maxDetail {
		return strings.ToValidUTF8(s[:maxDetail], "") + "…"
	}
	return s
}

func seconds(ms *int64) string {
	if ms == nil {
		return ""
	}
	return fmt.Sprintf("%.2f s", float64(*ms)/1000)
}
