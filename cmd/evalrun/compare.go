package main

import (
	"cmp"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/eval/compare"
	"github.com/evalrun/evalrun/eval/stats"
	"github.com/evalrun/evalrun/internal/durable"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/web"
	"github.com/evalrun/evalrun/runner"
)

// compareFormats are the formats that the command compare can write.
var compareFormats = append([]string{formatHTML}, runner.ComparisonFormats...)

// compareFlags are the flags of compare.
type compareFlags struct {
	by                              []string
	agents                          []string
	margin, noWorseThan, betterThan string
	missing, undecided              string
	power                           float64
	resamples                       int
	seed                            uint64
	interval                        string
	differentSets, selfTest         bool
	format, output                  string
}

func compareCommand(g *globals) *cobra.Command {
	var f compareFlags
	cmd := &cobra.Command{
		Use:   "compare A B | RUN --agents A,B | --aa RUN [RUN]",
		Short: "Compare two runs: what became worse, and whether it is more than chance",
		Long: `Compare a baseline A with a candidate B: two runs or results documents of one eval set, or two
agents of one run. Evaluations are paired, so that what they have in common does not count as noise.

--no-worse-than and --better-than are gates on the first figure, judged by its 95 % interval: exit
code 0 if they are met, 1 if they are not, 5 if the interval allows both. Without them the exit code
says nothing of the difference. --aa compares the epochs of one run with each other, to see how
often a difference is found where there is none.

The format html is one file that a browser opens without a server or a network: all of the
comparison, with its intervals drawn.`,
		Example: `  evalrun compare main.json pr.json --no-worse-than 0.02
  evalrun compare 0197a 0197b --by score
  evalrun compare RUN --agents old,new
  evalrun compare main.json pr.json --format html -o compare.html
  evalrun compare --aa RUN`,
		Args: between(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, g, args) },
	}
	fl := cmd.Flags()
	fl.StringArrayVar(&f.by, "by", nil,
		"compare `FIGURE`: score, passRate, evaluator:ID, tokens or cost (repeatable; default: all that there are); the first one decides")
	fl.StringSliceVar(&f.agents, "agents", nil, "compare the agents `A,B`, of one run or of two")
	fl.StringVar(&f.margin, "margin", "", "call differences of up to `D` equivalent")
	fl.StringVar(&f.noWorseThan, "no-worse-than", "", "gate: B is not worse than A by more than `D`")
	fl.StringVar(&f.betterThan, "better-than", "", "gate: B is better than A by more than `D` (0 is allowed)")
	fl.StringVar(&f.missing, "missing", "pairs", "count what has no score as `pairs|zero`: leave the evaluation out, or take 0")
	fl.StringVar(&f.undecided, "undecided", "exit",
		"what an undecided gate comes to: `fail|pass|exit`, exit being exit code 5")
	fl.Float64Var(&f.power, "power", stats.DefaultSettings.Power,
		"the probability `P` with which the smallest detectable difference is found")
	fl.IntVar(&f.resamples, "bootstrap", stats.DefaultSettings.Resamples, "take `N` bootstrap samples; 0 for none")
	fl.Uint64Var(&f.seed, "seed", stats.DefaultSettings.Seed, "the seed `N` of all random numbers")
	fl.StringVar(&f.interval, "interval", "",
		"compute the intervals of scores by `gaffke|t`; t assumes that rare large losses would have been seen (default: as both sets say, else gaffke)")
	fl.BoolVar(&f.differentSets, "allow-different-sets", false,
		"compare what both have, although their evaluations or evaluators differ")
	fl.BoolVar(&f.selfTest, "aa", false,
		"compare the epochs of one run with each other, or two runs that should be the same")
	fl.StringVar(&f.format, "format", "text", "`FORMAT`: "+strings.Join(compareFormats, ", "))
	fl.StringVarP(&f.output, "output", "o", "", "write to `FILE` instead of stdout")
	return cmd
}

func (f *compareFlags) run(cmd *cobra.Command, g *globals, args []string) error {
	o, err := f.options(g, args)
	method, wrong := intervalMethod(cmd, f.interval)
	o.Interval = method
	if err := errors.Join(err, wrong, refuseInput("output", f.output, args...)); err != nil {
		return err
	}
	agents := append(slices.Clone(f.agents), "", "")
	names := append(slices.Clone(args), args[0]) // two agents of one run
	if f.selfTest && len(args) == 1 {
		a, err := g.side(cmd, names[0], agents[0])
		if err != nil {
			return err
		}
		d, err := runner.SelfTest(a, firstOr(f.by, "score"), f.seed)
		if err != nil {
			return err
		}
		return f.write(cmd, g, func(w io.Writer) error { return runner.WriteSelfTest(w, d, f.format) })
	}
	a, b, err := g.sides(cmd, names, agents)
	if err != nil {
		return err
	}
	d, err := runner.Compare(a, b, o)
	if errors.Is(err, compare.ErrNoPairs) {
		return &exitError{exitFaulted, err}
	}
	if err != nil {
		return err
	}
	if compare.SameResults(&a, &b) {
		return usageError("A and B are the same results of run %s; a run is compared with itself by --aa", a.RunID)
	}
	write := func(w io.Writer) error { return runner.WriteComparison(w, d, f.format) }
	if f.format == formatHTML {
		write = func(w io.Writer) error { return web.WriteComparison(w, d) }
	}
	if err := f.write(cmd, g, write); err != nil {
		return err
	}
	if v := d.Comparisons[0].Verdict; f.selfTest && (v == compare.Improved || v == compare.Regressed) && !g.quiet {
		printf(cmd.ErrOrStderr(),
			"evalrun: the two runs should be the same, and they are not: something has changed between them\n")
	}
	undecided := map[string]runner.Verdict{"exit": runner.Undecided, "fail": runner.Failed,
		"pass": runner.Passed}[f.undecided]
	verdict, reason := runner.VerdictOf(d, undecided)
	return verdictError(runner.Judgement{Verdict: verdict, Reason: reason}, "")
}

// options returns the options that the flags give, checked before anything is read.
func (f *compareFlags) options(g *globals, args []string) (o compare.Options, err error) {
	if g.json {
		f.format = "json"
	}
	o = compare.Options{By: f.by, MissingZero: f.missing == "zero", AllowDifferentSets: f.differentSets,
		Settings: stats.Settings{Power: f.power, Resamples: f.resamples, Seed: f.seed}}
	var errs [3]error
	o.Margin, errs[0] = share("margin", f.margin)
	o.NoWorseThan, errs[1] = share("no-worse-than", f.noWorseThan)
	o.BetterThan, errs[2] = share("better-than", f.betterThan)
	if err := errors.Join(errs[:]...); err != nil {
		return o, err
	}
	for _, one := range []struct {
		flag, value string
		values      []string
	}{{"missing", f.missing, []string{"pairs", "zero"}}, {"undecided", f.undecided, []string{"fail", "pass", "exit"}},
		{"format", f.format, compareFormats}} {
		if !slices.Contains(one.values, one.value) {
			return o, usageError("--%s: expected one of %s, got %q%s", one.flag, strings.Join(one.values, ", "), one.value,
				input.Suggest(one.value, one.values))
		}
	}
	switch {
	case !(f.power > 0 && f.power < 1):
		return o, usageError("--power: expected a number above 0 and below 1, got %v", f.power)
	case f.resamples < 0 || f.resamples > 1_000_000:
		return o, usageError("--bootstrap: expected a whole number from 0 to 1000000, got %d", f.resamples)
	case f.agents != nil && len(f.agents) != 2 && (!f.selfTest || len(f.agents) != 1):
		return o, usageError("--agents: expected two agents A,B, got %d", len(f.agents))
	case len(args) == 1 && !f.selfTest && len(f.agents) != 2:
		return o, usageError("compare: expected two runs, or one with --agents A,B, or with --aa; got %s", args[0])
	case f.selfTest && len(args) == 1 && f.format == formatHTML:
		return o, usageError("--format html: --aa with one run has no page; take text, json or markdown")
	case f.selfTest && len(args) == 1 && (o.NoWorseThan != nil || o.BetterThan != nil):
		return o, usageError("--aa with one run has no gates: it has no candidate")
	}
	return o, nil
}

// intervalMethod reads --interval. An empty one leaves the method to the sets.
func intervalMethod(cmd *cobra.Command, text string) (stats.Method, error) {
	method := stats.Method(text)
	if cmd.Flags().Changed("interval") && method != stats.Bounded && method != stats.Student {
		return "", usageError("--interval: expected %s or %s, got %q", stats.Bounded, stats.Student, text)
	}
	return method, nil
}

// share reads an optional difference from 0 to 1.
func share(flag, text string) (*float64, error) {
	if text == "" {
		return nil, nil
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || !(v >= 0 && v <= 1) { // NaN is neither
		return nil, usageError("--%s: expected a number from 0 to 1, got %q", flag, text)
	}
	return &v, nil
}

func firstOr(all []string, otherwise string) string {
	if len(all) == 0 {
		return otherwise
	}
	return all[0]
}

// sides reads both sides. Two documents are read at the same time.
func (g *globals) sides(cmd *cobra.Command, names, agents []string) (a, b compare.Side, err error) {
	if !input.IsFile(names[0]) || !input.IsFile(names[1]) {
		if a, err = g.side(cmd, names[0], agents[0]); err == nil {
			b, err = g.side(cmd, names[1], agents[1])
		}
		return a, b, err
	}
	var other error
	var done sync.WaitGroup
	done.Go(func() { b, other = g.side(cmd, names[1], agents[1]) })
	a, err = g.side(cmd, names[0], agents[0])
	done.Wait()
	return a, b, cmp.Or(err, other)
}

// side reads the results that a name refers to.
func (g *globals) side(cmd *cobra.Command, name, agent string) (s compare.Side, err error) {
	if input.IsFile(name) {
		s, err = runner.OpenSide(name, agent)
		return s, internal(err)
	}
	err = g.withReport(cmd, name, func(r *runner.Report) (err error) {
		s, err = r.Side(agent)
		return err
	})
	return s, err
}

func (f *compareFlags) write(cmd *cobra.Command, g *globals, write func(io.Writer) error) error {
	return writeOrPrint(cmd, g, f.output, write)
}

// writeOrPrint writes to the file of --output, or else to stdout. With --quiet it prints only
// formats that were asked for.
func writeOrPrint(cmd *cobra.Command, g *globals, output string, write func(io.Writer) error) error {
	switch {
	case output != "":
		return durable.WriteOutput(output, 0o644, write)
	case g.quiet && !g.json && !cmd.Flags().Changed("format"):
		return nil
	}
	return write(stdout(cmd))
}
