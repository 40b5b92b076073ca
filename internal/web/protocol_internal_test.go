package web

import (
	"fmt"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/eval/summary"
	"github.com/evalrun/evalrun/internal/report"
	"github.com/evalrun/evalrun/schemas"
)

// A patch has the rollouts whose status or score has changed since a revision, whichever overviews were
// made in between; everything if that is not known.
func TestAPatchHasWhatHasChangedSinceARevision(t *testing.T) {
	t.Parallel()
	one := func(revision int64, rows ...string) *overview {
		o := &overview{head: schemas.Head{Revision: revision, Statistics: new(summary.Summary)}, base: revision, counts: map[string]int{}, agents: []string{"a"}, evaluations: make([]evaluation, 1)}
		for _, text := range rows {
			status, score, _ := strings.Cut(text, " ")
			r := row{Row: report.Row{Status: status}}
			if v := 0.0; score != "" {
				_, _ = fmt.Sscan(score, &v)
				r.Score = &v
			}
			o.rows = append(o.rows, r)
		}
		return o
	}
	a, b, c := one(10, "failed 0", "failed 0.25", "running", "passed 1"), one(12, "failed 0", "failed 0.5", "running", "passed 1"), one(15, "failed 0", "failed 0.5", "faulted", "passed 1")
	b.follow(a)
	c.follow(b)
	for since, want := range map[int64]string{9: "0 1 2 3 whole", 10: "1 2", 11: "1 2", 12: "2", 14: "2", 15: "", 16: "0 1 2 3 whole", -1: "0 1 2 3 whole"} {
		p := patchOf(since, c)
		var got []string
		for _, set := range p.Set {
			got = append(got, fmt.Sprint(set[0]))
		}
		if p.Whole {
			got = append(got, "whole")
		}
		if got := strings.Join(got, " "); got != want {
			t.Errorf("since %d: %q, want %q", since, got, want)
		}
	}
	if shorter := one(20, "passed 1"); true {
		shorter.follow(c)
		if p := patchOf(15, shorter); !p.Whole {
			t.Error("another run of the same id has changes")
		}
	}
}
