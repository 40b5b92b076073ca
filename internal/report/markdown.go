package report

import (
	"io"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/schemas"
)

// markdownRows is the most rollouts that a table has: GitHub takes 1 MiB of a step's summary.
const markdownRows = 200

// WriteMarkdown writes a summary for people: the verdict, the evaluators, then what failed, what is
// suspended and how to resume it, what faulted, and why, folded.
func (r *Report) WriteMarkdown(w io.Writer, s Showing) error {
	c, err := r.census()
	if err != nil {
		return err
	}
	j, err := s.judgement(r)
	if err != nil {
		return err
	}
	m := markdownWriter{explainer{r, c, s}, &lines{w: w}}
	out := m.out
	out.printf("## %s – %s\n\n", markdown(r.EvaluationSetName), markdown(j.Headline()))
	if j.Reason != "" {
		out.printf("%s\n\n", markdown(shorten(redact.Line(j.Reason), 500)))
	}
	out.printf("%s; **%s**", c, markdown(r.summary().formatScores()))
	if !r.Final {
		out.printf(" so far")
	}
	out.printf("%s (run %s)\n", r.summary().missing(), code(r.RunID))
	for _, selected := range r.selected(c) {
		out.printf("\n%s\n", markdown(shorten(selected, 500)))
	}
	m.evaluators()
	for _, section := range []struct {
		v       verdict
		title   string
		columns []string
		row     func(*schemas.Rollout) []string
	}{
		{verdict(schemas.StateSuspended), "Suspended", []string{"evaluation", "waits for"},
			func(one *schemas.Rollout) []string {
				return []string{markdown(c.label(one)), code(strings.TrimPrefix(waitingFor(one), "waiting for "))}
			}},
		{verdict(schemas.StateScoring), "Waiting for a score", []string{"evaluation", "waits for"},
			func(one *schemas.Rollout) []string {
				return []string{markdown(c.label(one)), code(strings.TrimPrefix(waitingFor(one), "waiting for "))}
			}},
		{verdict(schemas.StateFaulted), "Faulted", []string{"evaluation", "category", "message"},
			func(one *schemas.Rollout) []string {
				if one.Error == nil {
					return []string{markdown(c.label(one)), "", ""}
				}
				return []string{markdown(c.label(one)), markdown(one.Error.Category),
					markdown(shorten(redact.Line(one.Error.Message), 500))}
			}},
		{unscored, "Unscored", []string{"evaluation", "reason"}, func(one *schemas.Rollout) []string {
			return []string{markdown(c.label(one)), markdown(shorten(reason(one), 500))}
		}},
		{failed, "Failed", []string{"evaluation", "score", "evaluators"}, func(one *schemas.Rollout) []string {
			return []string{markdown(c.label(one)), formatScore(one.Score), markdown(shorten(reason(one), 500))}
		}},
	} {
		if c.verdicts[section.v] == 0 {
			continue
		}
		out.printf("\n### %s\n\n", section.title)
		if err := m.rollouts(section.v, c.verdicts[section.v], section.columns, section.row); err != nil {
			return err
		}
		told := section.v == verdict(schemas.StateSuspended) ||
			section.v == verdict(schemas.StateScoring) && c.verdicts[verdict(schemas.StateSuspended)] == 0
		if told && s.Resume != "" {
			out.printf("\nWaiting for %s. To go on: %s\n", c.awaited, code(s.Resume))
		}
	}
	if err := m.reasons(); err != nil {
		return err
	}
	return out.err
}

// markdownWriter writes the parts of the summary in Markdown.
type markdownWriter struct {
	explainer
	out *lines
}

// reasons explains at length, folded, why rollouts have failed.
func (m markdownWriter) reasons() error {
	begun := false
	more, err := m.failures(func(f failure) error {
		if !begun {
			m.out.printf("\n### Why\n")
			begun = true
		}
		m.out.printf("\n<details><summary>%s <b>%s</b>: %s</summary>\n\n<pre>\n",
			f.verdict.mark(), html(f.label), html(f.title))
		for line := range strings.Lines(f.String()) {
			m.out.printf("%s\n", html(strings.TrimSuffix(line, "\n")))
		}
		m.out.printf("</pre>\n</details>\n")
		return m.out.err
	})
	if begun && more > 0 {
		m.out.printf("\n… and %d more\n", more)
	}
	return err
}

func (m markdownWriter) evaluators() {
	if head, rows := m.summary().table(markdown); rows != nil {
		m.out.printf("\n")
		tableHead(m.out, head...)
		for _, row := range rows {
			tableRow(m.out, row...)
		}
	}
	for _, sentence := range slices.Concat(
		m.summary().statisticsSentences(), m.summary().taskMetricSentences(), m.summary().usageSentences(),
		m.summary().playedSentences(),
	) {
		m.out.printf("\n%s.\n", markdown(sentence))
	}
	m.gates(m.showing).markdown(m.out)
}

func (m markdownWriter) rollouts(v verdict, n int, columns []string, row func(*schemas.Rollout) []string) error {
	tableHead(m.out, columns...)
	shown := 0
	if err := m.Rollouts(func(one *schemas.Rollout) error {
		if m.verdict(one) == v && shown < markdownRows {
			shown++
			tableRow(m.out, row(one)...)
		}
		return m.out.err
	}); err != nil {
		return err
	}
	if n > shown {
		m.out.printf("\n… and %d more\n", n-shown)
	}
	return nil
}
