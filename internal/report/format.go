package report

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/evalrun/evalrun/eval/stats"
	"github.com/evalrun/evalrun/internal/redact"
)

func formatScore(score *float64) string {
	if score == nil {
		return "-"
	}
	return strconv.FormatFloat(round(*score), 'f', -1, 64)
}

// round keeps four decimals, enough for a person.
func round(v float64) float64 {
	out, err := strconv.ParseFloat(strconv.FormatFloat(v, 'f', 4, 64), 64)
	if err != nil {
		return v
	}
	return out
}

// formatMean writes a mean and its standard error.
func formatMean(e stats.Estimate) string {
	if e.Mean == nil {
		return "-"
	}
	out := strconv.FormatFloat(*e.Mean, 'f', 3, 64)
	if e.StandardError != nil {
		out += " ± " + strconv.FormatFloat(*e.StandardError, 'f', 3, 64)
	}
	return out
}

// formatPassRate writes the share that passes and its 95 % interval.
func formatPassRate(e stats.Estimate) string {
	if e.Mean == nil {
		return "-"
	}
	out := percent(*e.Mean)
	if e.Low != nil && e.High != nil {
		out += " [" + percent(*e.Low) + ", " + percent(*e.High) + "]"
	}
	return out
}

func percent(share float64) string { return strconv.FormatFloat(100*share, 'f', 0, 64) + "%" }

// formatDuration is short: 0.4s, 12.3s, 1m32s.
func formatDuration(d time.Duration) string {
	if d < time.Minute {
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + "s"
	}
	return d.Round(time.Second).String()
}

func milliseconds(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// shorten cuts a line to a number of characters.
func shorten(s string, most int) string {
	runes := []rune(s)
	if len(runes) <= most {
		return s
	}
	return string(runes[:max(most-1, 0)]) + "…"
}

// textLines are the lines of a text that are not blank, harmless and not too long.
func textLines(text string) (out []string) {
	for line := range strings.Lines(redact.Terminal(text)) {
		if line = strings.TrimRight(line, " \t\n"); strings.TrimSpace(line) != "" {
			out = append(out, middle(strings.ReplaceAll(line, "\t", "    "), longWidth))
		}
	}
	return out
}

// middle cuts a text to so many characters, in the middle.
func middle(s string, most int) string {
	r := []rune(s)
	if len(r) <= most {
		return s
	}
	head := most * 2 / 3
	return string(r[:head]) + fmt.Sprintf("… %d characters …", len(r)-most) + string(r[len(r)-(most-head):])
}

// longWidth is the most characters of an agent's input or output that are shown.
const longWidth = 400
