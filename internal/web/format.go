package web

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/schemas"
)

// none stands for a missing number.
const none = "–"

// formatScore writes a score with three decimals.
func formatScore(score *float64) string {
	if score == nil {
		return none
	}
	return strconv.FormatFloat(*score, 'f', 3, 64)
}

// formatDuration writes a duration with a unit and as many digits as are useful. It writes a dash
// for no time.
func formatDuration(d time.Duration) string {
	switch {
	case d < 50*time.Microsecond:
		return none
	case d < 10*time.Millisecond:
		return strconv.FormatFloat(float64(d)/float64(time.Millisecond), 'f', 1, 64) + " ms"
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.2f s", float64(d)/float64(time.Second)) // as the script divides
	case d < time.Hour:
		return fmt.Sprintf("%d min %d s", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%d d %d h", int(d.Hours())/24, int(d.Hours())%24)
}

func formatMs(ms int64) string { return formatDuration(time.Duration(ms) * time.Millisecond) }

// counted writes a number with its noun.
func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// percent writes a share as an attribute of a drawing.
func percent(x float64) string { return strconv.FormatFloat(100*min(max(x, 0), 1), 'f', 3, 64) + "%" }

// shortID returns the end of an id that evalrun made, and all of an id that somebody chose: the ids
// of runs from about the same time begin alike.
func shortID(id string) string {
	if len(id) == 36 && strings.Count(id, "-") == 4 {
		return id[28:]
	}
	return short(id, 40)
}

// deliverer says who delivered something, and by what means.
func deliverer(by, person string) string {
	if by == wait.SourceFixed {
		return "played"
	}
	if person == "" {
		return by
	}
	return person + " (" + by + ")"
}

// short cuts a text to its beginning.
func short(text string, most int) string {
	if begin, left := cut(text, most); left > 0 {
		return begin + "…"
	}
	return text
}

// setName returns the name that people read for a run.
func setName(h schemas.Head) string {
	switch {
	case h.EvaluationSetName != "":
		return h.EvaluationSetName
	case h.EvaluationSetID != "":
		return h.EvaluationSetID
	}
	return h.RunID
}

// isScalar reports whether a value fits into a line.
func isScalar(raw json.RawMessage) bool {
	return len(raw) > 0 && raw[0] != '{' && raw[0] != '[' && len(raw) < 1000
}

func millionths(score *float64) int {
	if score == nil {
		return -1
	}
	return int(math.Round(*score * 1e6))
}
