package report

import (
	"strings"
	"unicode"

	"golang.org/x/text/width"

	"github.com/evalrun/evalrun/schemas"
)

// Terminal says what the target of a text can show. The zero value is a file.
type Terminal struct {
	// Width is how many columns a line has; 0 means no limit.
	Width int
	Color bool
}

// mark returns a verdict as a shape, which does not need colour.
func (v verdict) mark() string {
	switch v {
	case passed:
		return "✓"
	case failed:
		return "✗"
	case unscored:
		return "?"
	case verdict(schemas.StateSuspended), verdict(schemas.StateScoring):
		return "⏸"
	case verdict(schemas.StateFaulted):
		return "⚠"
	case verdict(schemas.StateCancelled):
		return "⊘"
	}
	return "…"
}

// paint gives a text the colour of a verdict.
func (t Terminal) paint(v verdict, s string) string {
	if !t.Color || s == "" {
		return s
	}
	switch v {
	case passed:
		return "\x1b[32m" + s + "\x1b[0m"
	case failed, verdict(schemas.StateFaulted):
		return "\x1b[31m" + s + "\x1b[0m"
	case unscored, verdict(schemas.StateSuspended), verdict(schemas.StateScoring), verdict(schemas.StateCancelled):
		return "\x1b[33m" + s + "\x1b[0m"
	case finished:
		return "\x1b[90m" + s + "\x1b[0m"
	}
	return s
}

// cells counts the columns that a text takes on a terminal.
func cells(s string) (n int) {
	for _, r := range s {
		n += runeCells(r)
	}
	return n
}

func runeCells(r rune) int {
	if unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf) {
		return 0
	}
	if k := width.LookupRune(r).Kind(); k == width.EastAsianWide || k == width.EastAsianFullwidth {
		return 2
	}
	return 1
}

// fit cuts a text to so many columns.
func fit(s string, most int) string {
	if cells(s) <= most {
		return s
	}
	n := 0
	for i, r := range s {
		if n += runeCells(r); n > most-1 {
			return strings.TrimRight(s[:i], " ") + "…"
		}
	}
	return s
}

// grid is a table whose columns are aligned.
type grid struct {
	rows [][]string
	// flexible lists the columns that may be cut where the terminal is too narrow, to no less than
	// minCells.
	flexible []int
	// verdicts, if not nil, give the first cell of each row a colour.
	verdicts []verdict
}

const (
	minCells = 8
	gap      = 2
)

// widths returns the widths of the columns, and whether the grid fits.
func (g grid) widths(most int) (out []int, fits bool) {
	total := -gap
	for _, row := range g.rows {
		for i, cell := range row {
			if i == len(out) {
				out = append(out, 0)
			}
			out[i] = max(out[i], cells(cell))
		}
	}
	for _, w := range out {
		if w > 0 {
			total += w + gap
		}
	}
	for most > 0 && total > most {
		widest := -1
		for _, i := range g.flexible {
			if i < len(out) && out[i] > minCells && (widest < 0 || out[i] > out[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return out, false
		}
		out[widest]--
		total--
	}
	return out, true
}

func (g grid) write(out *lines, t Terminal) {
	widths, _ := g.widths(t.Width)
	for i, row := range g.rows {
		var line strings.Builder
		for j, cell := range row {
			if widths[j] == 0 {
				continue // no row has anything in this column
			}
			cell = fit(cell, widths[j])
			padding := ""
			if j < len(row)-1 {
				padding = strings.Repeat(" ", widths[j]-cells(cell)+gap)
			}
			if j == 0 && g.verdicts != nil {
				cell = t.paint(g.verdicts[i], cell)
			}
			line.WriteString(cell + padding)
		}
		out.printf("%s\n", line.String())
	}
}
