package report

import (
	"io"
	"slices"

	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/schemas"
)

// WriteTable writes a run's end for people: one line for each rollout (of a large run only for
// those that did not pass), why rollouts have failed, the statistics, what is waited for, the
// summary, and the verdict as the last line.
func (r *Report) WriteTable(w io.Writer, s Showing) error {
	c, err := r.census()
	if err != nil {
		return err
	}
	j, err := s.judgement(r)
	if err != nil {
		return err
	}
	t := tableWriter{explainer{r, c, s}, &lines{w: w}}
	out := t.out
	if err := t.rollouts(); err != nil {
		return err
	}
	if err := t.reasons(); err != nil {
		return err
	}
	t.evaluators()
	for _, sentence := range slices.Concat(r.summary().taskMetricSentences(), r.summary().usageSentences(),
		r.summary().playedSentences()) {
		out.printf("%s\n", sentence)
	}
	r.gates(s).text(out)
	if c.verdicts[verdict(schemas.StateSuspended)]+c.verdicts[verdict(schemas.StateScoring)] > 0 {
		out.printf("waiting for %s\n", c.awaited)
		for _, next := range [][2]string{{"to resume", s.Resume}, {"what it waits for, and how to answer", s.Triggers}} {
			if next[1] != "" {
				out.printf("%s: %s\n", next[0], redact.Line(next[1]))
			}
		}
	}
	for _, selected := range r.selected(c) {
		out.printf("%s\n", shorten(selected, 2*reasonWidth))
	}
	if s.Last != "" {
		out.printf("%s\n", s.Last)
	}
	out.printf("%s; %s%s\n", c, r.summary().formatScores(), r.summary().missing())
	out.printf("%s\n", s.paint(colorOf(j), j.Headline()))
	return out.err
}

// tableWriter writes the parts of the table at the end of a run.
type tableWriter struct {
	explainer
	out *lines
}

func (t tableWriter) rollouts() error {
	table := grid{flexible: []int{2, 4}}
	all := t.census.total <= tableRows
	wanted := 0
	if err := t.Rollouts(func(one *schemas.Rollout) error {
		v := t.verdict(one)
		told := v != passed || EvaluatorFailed(one) || EvaluatorNotRun(one)
		if !all && !told {
			return nil
		}
		if wanted++; wanted > tableRows {
			return nil
		}
		why := ""
		if told {
			why = shorten(reason(one), reasonWidth)
		}
		took := formatDuration(milliseconds(one.Clocks.WorkingMs))
		if one.Cached != nil {
			took = "cached"
		}
		table.verdicts = append(table.verdicts, v)
		table.rows = append(table.rows, []string{string(v), formatScore(one.Score),
			shorten(t.census.label(one), nameWidth), took, why})
		return nil
	}); err != nil {
		return err
	}
	table.write(t.out, t.showing.Terminal)
	if more := wanted - len(table.rows); more > 0 {
		t.out.printf("… and %d more\n", more)
	}
	if wanted > 0 {
		t.out.printf("\n")
	}
	return nil
}

// reasons explains at length why rollouts have failed.
func (t tableWriter) reasons() error {
	more, err := t.failures(func(f failure) error {
		f.text(t.out, t.showing.Terminal)
		t.out.printf("\n")
		return t.out.err
	})
	if more > 0 && t.showing.Failures > 0 {
		t.out.printf("… and %s; --failures all shows all\n\n", count(more, "more failure"))
	}
	return err
}

func (t tableWriter) evaluators() {
	tables := t.summary().grids(func(name string) string { return shorten(redact.Line(name), nameWidth) }, t.showing.Width)
	for _, one := range tables {
		if one.title != "" {
			t.out.printf("%s\n", one.title)
		}
		one.write(t.out, t.showing.Terminal)
	}
	if len(tables) == 0 {
		return
	}
	for _, sentence := range t.summary().statisticsSentences() {
		t.out.printf("%s\n", sentence)
	}
	t.out.printf("\n")
}
