package web

import (
	"fmt"
	"strings"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/runner"
	"github.com/evalrun/evalrun/schemas"
)

// verdict is the verdict on the run as it stands.
type verdict struct {
	Word, Class string
	// Sentences say why, and what the verdict leaves out.
	Sentences []string
}

// verdictWord is a verdict as a word, with its mark. Where the exit code is 3 the word is what is
// missing: the first of what the runner looks for.
func verdictWord(v runner.Verdict, s *eval.Summary) (word, class string) {
	switch {
	case v == runner.Passed:
		return "passed", "pass"
	case v == runner.Failed:
		return "failed", "fail"
	case v != runner.Faulted:
		return v.String(), v.String()
	case s.Rollouts.Faulted > 0:
		return "faulted", "faulted"
	case s.Coverage.EvaluatorErrors > 0:
		return "evaluators failed", "unscored"
	case s.Coverage.Cancelled == s.Coverage.Evaluations:
		return "cancelled", "cancelled"
	case s.Coverage.Unscored > 0:
		return "not all scored", "unscored"
	}
	return "nothing scored", "unscored"
}

func verdictOf(o *overview) verdict {
	v := verdict{}
	v.Word, v.Class = verdictWord(o.verdict, o.head.Statistics)
	if o.head.Status == schemas.Running {
		v.Word, v.Class = "running", "running"
	}
	s := o.head.Statistics
	n := gateVerdicts(s)
	add := func(format string, args ...any) { v.Sentences = append(v.Sentences, fmt.Sprintf(format, args...)) }
	switch {
	case len(s.Gates) == 0:
		add("The set has no thresholds, so that no score can fail it.")
	case n[eval.GateUndecided] > 0:
		add("%d of %s undecided, %d met, %d not met.", n[eval.GateUndecided], counted(len(s.Gates), "gate"), n[eval.GatePass], n[eval.GateFail])
	default:
		add("%d of %s met.", n[eval.GatePass], counted(len(s.Gates), "gate"))
	}
	if open := o.counts["suspended"] + o.counts["scoring"] + o.counts["running"] + o.counts["evaluating"] + o.counts["pending"]; open > 0 {
		add("%s open and can still change it.", counted(open, "rollout")+map[bool]string{true: " is", false: " are"}[open == 1])
	}
	if o.reason != "" && o.verdict != runner.Failed && o.verdict != runner.Undecided {
		add("%s%s.", strings.ToUpper(o.reason[:1]), strings.TrimSuffix(o.reason[1:], "."))
	}
	c := s.Coverage
	for _, one := range []struct {
		n          int
		noun, rest string
		// reason is the word for the verdict that has been explained by this already.
		reason string
	}{{o.counts["faulted"], "rollout", " faulted", "faulted"}, {o.counts["unscored"], "rollout", " unscored", "not all scored"}, {o.counts["cancelled"], "rollout", " cancelled", "cancelled"},
		{c.EvaluatorErrors, "evaluator error", "", "evaluators failed"}, {c.EvaluatorsNotRun, "evaluator", " not run", ""}} {
		if one.n > 0 && one.reason != v.Word {
			add("%s%s.", counted(one.n, one.noun), one.rest)
		}
	}
	if o.head.Status != schemas.Running {
		code := o.verdict.ExitCode()
		if allowed := allowances(o.head.CommandLine); code != 0 && allowed != "" {
			add("Exit code now: %d, without the %s with which the run was started.", code, allowed)
		} else {
			add("Exit code now: %d.", code)
		}
	}
	return v
}

// gateVerdicts counts the gates of a run by their verdicts.
func gateVerdicts(s *eval.Summary) map[eval.GateVerdict]int {
	n := map[eval.GateVerdict]int{}
	for _, g := range s.Gates {
		n[g.Verdict]++
	}
	return n
}

// allowances are the flags of a run's command that let it have another exit code, in words; empty if it
// has none.
func allowances(commandLine []string) string {
	var out []string
	for i, word := range commandLine {
		switch word {
		case "--":
			return strings.Join(out, " and ")
		case "--fail-on-error", "--fail-on-evaluator-error":
			if i+1 < len(commandLine) {
				word += " " + commandLine[i+1]
			}
			out = append(out, word)
		case "--allow-suspended", "--allow-unscored":
			out = append(out, word)
		}
	}
	return strings.Join(out, " and ")
}
