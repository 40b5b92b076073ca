package report

import (
	"strings"

	"github.com/evalrun/evalrun/schemas"
)

// explainer says why rollouts of a report have not passed.
type explainer struct {
	*Report
	census  census
	showing Showing
}

// failure explains to a person why one rollout has not passed.
type failure struct {
	verdict verdict
	// title names the rollout and what became of it.
	label, title string
	// reasons come first, each in a line. Those of an evaluator are indented.
	reasons []string
	// facts are names and values. A value may have several lines.
	facts [][2]string
}

func (f *failure) add(name, value string) {
	if value != "" {
		f.facts = append(f.facts, [2]string{name, value})
	}
}

// text writes the failure as lines: the title, the reasons, and the facts with their names aligned.
func (f failure) text(out *lines, t Terminal) {
	out.printf("%s\n", t.paint(f.verdict, f.verdict.mark()+" "+f.label+": "+f.title))
	f.body(out)
}

func (f failure) body(out *lines) {
	for _, reason := range f.reasons {
		out.printf("    %s\n", reason)
	}
	for _, fact := range f.facts {
		name := fact[0]
		for line := range strings.SplitSeq(fact[1], "\n") {
			out.printf("  %-8s  %s\n", name, line)
			name = ""
		}
	}
}

// String writes the failure without colour, and without its title.
func (f failure) String() string {
	var b strings.Builder
	f.body(&lines{w: &b})
	return b.String()
}

// Explain says why a rollout has not passed, or what it waits for, in lines as the terminal shows
// them. It is empty if the rollout passed and none of its evaluators failed.
func (r *Report) Explain(one *schemas.Rollout, s Showing) string {
	if r.verdict(one) == passed && !EvaluatorFailed(one) {
		return ""
	}
	return explainer{Report: r, showing: s}.failure(one).String()
}
