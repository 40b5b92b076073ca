package web

import (
	"fmt"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/runner"
)

// maxTrend is the most runs of a set in a sparkline.
const maxTrend = 20

// trend is a sparkline: the scores of an agent in the runs of one set, the oldest first, with one
// of them marked. It is drawn in a box of 96 by 22.
type trend struct {
	Path   string
	Dot    *[2]string
	Label  string
	scores []float64
}

// sameSet returns the runs of the same set, the newest first: at most maxTrend, with the run
// itself.
func sameSet(of runner.Run, all []runner.Run) (out []runner.Run) {
	for _, r := range all {
		if r.EvaluationSetID == of.EvaluationSetID {
			out = append(out, r)
		}
	}
	at := slices.IndexFunc(out, func(r runner.Run) bool { return r.ID == of.ID })
	from := max(0, min(at-maxTrend/2, len(out)-maxTrend))
	return out[from:min(len(out), from+maxTrend)]
}

func (t *trend) draw(marked int) {
	low, high := slices.Min(t.scores), slices.Max(t.scores)
	if high-low < 0.05 { // small differences look flat
		low, high = (low+high)/2-0.025, (low+high)/2+0.025
	}
	var path strings.Builder
	for i, s := range t.scores {
		x, y := 4+88*float64(i)/float64(len(t.scores)-1), 18-14*(s-low)/(high-low)
		fmt.Fprintf(&path, "%c%.1f %.1f", "ML"[min(i, 1)], x, y)
		if i == marked {
			t.Dot = &[2]string{fmt.Sprintf("%.1f", x), fmt.Sprintf("%.1f", y)}
		}
	}
	t.Path = path.String()
}
