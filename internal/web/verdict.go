package web

import (
	"fmt"
	"strings"

	"github.com/evalrun/evalrun/eval/summary"
	judged "github.com/evalrun/evalrun/eval/verdict"
	"github.com/evalrun/evalrun/runner"
	"github.com/evalrun/evalrun/schemas"
)

// verdict is the verdict on the run as it stands.
type verdict struct {
	Word, Class string
	// Sentences say why, and what the verdict leaves out.
	Sentences []string
}

// classOfVerdict returns the mark of a verdict. Only a run that passed its gates is green. A run
// without gates is grey.
func classOfVerdict(j runner.Judgement) string {
	switch j.Word {
	case judged.Passed.String():
		return "pass"
	case judged.Failed.String(), judged.FailsAlready:
		return "fail"
	case judged.EvaluatorsFailed, judged.EvaluatorsNotRun, judged.NotAllScored, judged.NothingScored:
		return "unscored"
	}
	return j.Word
}

func verdictOf(o *overview) verdict {
	j := o.judgement
	v := verdict{Word: j.Word, Class: classOfVerdict(j)}
	s := o.head.Statistics
	n := gateVerdicts(s)
	add := func(format string, args ...any) { v.Sentences = append(v.Sentences, fmt.Sprintf(format, args...)) }
	switch {
	case j.Verdict == runner.Finished:
		add("%s. Neither a threshold nor --fail-under says whether that is good enough.", capital(j.Figures))
	case j.Word == judged.FailsAlready:
		add("%s.", capital(j.Figures))
	case len(s.Gates) == 0:
		add("The set has no thresholds, so that no score can fail it.")
	case n[summary.GateUndecided] > 0:
		add("%d of %s undecided, %d met, %d not met.",
			n[summary.GateUndecided], counted(len(s.Gates), "gate"), n[summary.GatePass], n[summary.GateFail])
	default:
		add("%d of %s met.", n[summary.GatePass], counted(len(s.Gates), "gate"))
	}
	if open := o.counts["suspended"] + o.counts["scoring"] + o.counts["running"] + o.counts["evaluating"] +
		o.counts["pending"]; open > 0 && j.Word != judged.FailsAlready { // open rollouts cannot change that
		add("%s open and can still change it.",
			counted(open, "rollout")+map[bool]string{true: " is", false: " are"}[open == 1])
	}
	if j.Verdict == runner.Faulted && j.Reason != "" {
		add("%s.", capital(strings.TrimSuffix(j.Reason, ".")))
	}
	c := s.Coverage
	for _, one := range []struct {
		n          int
		noun, rest string
		// reason is the word for the verdict that has been explained by this already.
		reason string
	}{
		{o.counts["faulted"], "rollout", " faulted", "faulted"},
		{o.counts["unscored"], "rollout", " unscored", "not all scored"},
		{o.counts["cancelled"], "rollout", " cancelled", "cancelled"},
		{c.EvaluatorErrors, "evaluator error", "", "evaluators failed"},
		{c.EvaluatorsNotRun, "evaluator result", " not run", judged.EvaluatorsNotRun},
	} {
		if one.n > 0 && one.reason != v.Word {
			add("%s%s.", counted(one.n, one.noun), one.rest)
		}
	}
	if o.head.Status != schemas.Running {
		code := j.Verdict.ExitCode()
		if allowed := allowances(o.head.CommandLine); code != 0 && allowed != "" {
			add("Exit code now: %d, without the %s with which the run was started.", code, allowed)
		} else {
			add("Exit code now: %d.", code)
		}
	}
	return v
}

// capital capitalizes a text, which must not be empty.
func capital(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

// gateVerdicts counts the gates of a run by their verdicts.
func gateVerdicts(s *summary.Summary) map[summary.GateVerdict]int {
	n := map[summary.GateVerdict]int{}
	for _, g := range s.Gates {
		n[g.Verdict]++
	}
	return n
}

// allowances returns the flags of a run's command that permit another exit code, in words; empty if
// it has none.
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
		case "--allow-suspended", "--allow-unscored", "--allow-not-run":
			out = append(out, word)
		}
	}
	return strings.Join(out, " and ")
}
