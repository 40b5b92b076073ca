package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/python"
	"github.com/evalrun/evalrun/eval/verdict"
	"github.com/evalrun/evalrun/internal/durable"
	"github.com/evalrun/evalrun/internal/engine"
	"github.com/evalrun/evalrun/internal/failpoint"
	"github.com/evalrun/evalrun/internal/files"
	"github.com/evalrun/evalrun/internal/judge"
	"github.com/evalrun/evalrun/internal/plans"
	"github.com/evalrun/evalrun/internal/rollout"
	"github.com/evalrun/evalrun/internal/sandbox"
	"github.com/evalrun/evalrun/internal/store"
)

// ScoreOptions say how completed rollouts are scored again.
type ScoreOptions struct {
	// Evaluators is an evaluator file or an eval set. The evaluator of a file replaces the one with
	// its id or is added; the evaluators and criteria of a set replace all. Empty means the evaluators
	// that the run was planned with.
	Evaluators string
	// AllowCode lets evaluators run that are code in Python outside of the working tree.
	AllowCode bool
	// Failed asks only the evaluators that have failed or were not run, among those that judge the run
	// now.
	Failed bool
	// Verifier asks the verifiers of tasks alone, with the present tests of the task directories.
	Verifier bool
	// Completed scores the completed rollouts of a run that is not final.
	Completed bool
	// WithoutWorkspaces also asks command evaluators if the workspace was not kept.
	WithoutWorkspaces bool
	// Concurrency is how many rollouts are scored at once; 0 means DefaultConcurrency.
	Concurrency int
	// Variables are the variables that tasks may name. Their values are redacted.
	Variables Variables
	// JudgeModel is the model of judges that would ask the agent's own model, if that is not known.
	// NoJudgeCache asks judges again for verdicts that are cached.
	JudgeModel   string
	NoJudgeCache bool
	// Drain, when it is closed, lets the running evaluators finish and asks no other.
	Drain <-chan struct{}
	// Notice, if not nil, is called with messages that the user should see at once. Log gets the log
	// lines in place of OpenOptions.Log.
	Notice func(text string)
	Log    io.Writer
	// Document is a file that the results document is also written to.
	Document string
	// Accept says what a run may lack and still pass.
	Accept Accept
	// FailUnder are thresholds by which the run is judged this time. They replace those of its plan
	// for the same figures.
	FailUnder eval.FailUnder
}

// Scored is how a run stands after it was scored again.
type Scored struct {
	Result
	// Number is the number of the rescoring, 0 if there was nothing to score.
	Number int
	// Scored counts the rollouts with new results, NotScored those without, Due those that are still
	// to be scored.
	Scored, NotScored, Due int
}

// Score scores the completed rollouts of a run again. Evaluators see what is stored of them, and
// the new results replace the earlier ones, for each rollout at once. No agent and no job is
// started, and nobody is asked again. If it is interrupted, the same call continues it.
func (s *Store) Score(ctx context.Context, runID string, o ScoreOptions) (Scored, error) {
	out := Scored{Result: Result{RunID: runID}}
	p, err := readPlanned(ctx, s.st, runID, o.Variables)
	if err != nil {
		return out, err
	}
	if err := p.mayScore(ctx, o); err != nil {
		return out, err
	}
	lock, err := p.lockScoring()
	if err != nil {
		return out, err
	}
	defer func() { _ = lock.Close() }() // nothing was written to it
	r, err := s.newRescoring(ctx, p, o)
	if err != nil {
		return out, err
	}
	if err := o.FailUnder.Check(&eval.Set{Evaluators: r.with.Evaluators}); err != nil {
		return out, inputError("--fail-under: %w", err)
	}
	for _, def := range r.with.Evaluators {
		if o.Evaluators != "" && python.Is(def) {
			if err := mayRun(def, python.Of(def, r.dir), o.AllowCode); err != nil {
				return out, err
			}
		}
	}
	for _, text := range r.notices {
		o.notice("%s", text)
	}
	if out.Number, err = r.begin(ctx, o); err != nil {
		return out, err
	}
	if out.Number > 0 {
		logger := work{s: s, o: Options{Log: o.Log}, red: p.red}.logger(p.red)
		host := &rollout.Host{Store: s.st, Resolve: o.Variables.resolve, Executable: s.opts.Executable, Logger: logger}
		err = r.score(ctx, host, out.Number, o)
	}
	if errors.Is(err, store.ErrMoved) {
		return out, err
	}
	ctx = context.WithoutCancel(ctx)
	var saved error
	out.Judgement, saved = p.saveAndJudge(ctx, o.Document, judging{o.Accept, o.FailUnder}, false)
	if err := errors.Join(err, saved); err != nil {
		return out, err
	}
	if err := s.tellScored(ctx, p, o); err != nil {
		return out, err
	}
	return out, p.judgeScored(ctx, &out)
}

// tellScored brings events.jsonl up to date, also with the event of a rescoring whose process was
// killed before it had written, and sends notifications.
func (s *Store) tellScored(ctx context.Context, p planned, o ScoreOptions) error {
	failpoint.Hit("rescore.telling")
	err := engine.WriteEvents(ctx, s.st, p.runID, p.red)
	work{s: s, o: Options{Variables: o.Variables, Notice: o.Notice, Log: o.Log}}.notifying(ctx)()
	failpoint.Hit("rescore.told")
	return err
}

func (o ScoreOptions) notice(format string, args ...any) {
	if o.Notice != nil {
		o.Notice(fmt.Sprintf(format, args...))
	}
}

// mayScore refuses a rescoring that would leave results of different evaluators in a run, or that
// would repeat work that is still to come.
func (p planned) mayScore(ctx context.Context, o ScoreOptions) error {
	run, err := p.st.Run(ctx, p.runID)
	switch {
	case err != nil:
		return err
	case o.Failed && o.Evaluators != "":
		return inputError("--failed asks the evaluators of the run again that have failed; with --evaluators all rollouts are scored, so that none keeps a score of other evaluators")
	case o.Verifier && (o.Failed || o.Evaluators != ""):
		return inputError("--verifier runs the verifiers of tasks again and nothing else; leave out --failed and --evaluators")
	case !run.Final() && o.Verifier:
		return inputError("run %s is not final: the rollouts that are still open will be verified by the tests that it was planned with; run the verifiers again when it is final",
			p.runID)
	case !run.Final() && !o.Completed:
		return inputError("run %s is not final: %d of %s completed; --completed scores these again", p.runID,
			run.Counts.Completed, rollouts(run.Counts.Total))
	case !run.Final() && o.Evaluators != "":
		return inputError("run %s is not final: the rollouts that are still open will be scored by the evaluators that it was planned with; score it with others when it is final",
			p.runID)
	}
	return p.st.InPlace()
}

// lockScoring makes sure that one process at a time scores a run again, because evaluators may cost
// something.
func (p planned) lockScoring() (*os.File, error) {
	run := files.Of(p.st).Run(p.runID)
	if err := os.MkdirAll(string(run), 0o700); err != nil {
		return nil, err
	}
	lock, err := durable.TryLock(run.ScoreLock(), 0o600)
	if errors.Is(err, durable.ErrLocked) {
		return nil, inputError("run %s is being scored again by another process; wait until it has ended", p.runID)
	}
	return lock, err
}

// begin begins the rescoring, or continues the last one if that is the same and has not ended. The
// number is 0 if there is nothing to score.
func (r *rescoring) begin(ctx context.Context, o ScoreOptions) (number int, err error) {
	n := r.earlier.Last()
	if n > 0 && r.earlier.Stored[n-1].EndedAt.IsZero() {
		if r.earlier.With[n-1].Continues(r.with) {
			o.notice("going on with rescoring %d: %s left", n, rollouts(r.earlier.Stored[n-1].Due))
			return n, r.sweep(ctx, n)
		}
		if o.Failed {
			return 0, inputError("rescoring %d of run %s has not ended: %s left; go on with it first, or score the run anew",
				n, r.runID, rollouts(r.earlier.Stored[n-1].Due))
		}
		o.notice("rescoring %d had not ended: %s left; this one takes its place", n, rollouts(r.earlier.Stored[n-1].Due))
	}
	begun := store.NewRescoring{RunID: r.runID, After: n, Evaluations: r.evaluations}
	if o.Failed {
		if begun.Rollouts, err = r.failed(ctx); err != nil {
			return 0, err
		}
		if len(begun.Rollouts) == 0 {
			o.notice("no evaluator has failed: nothing is scored again")
			return 0, nil
		}
	}
	if begun.Data, err = r.encode(); err != nil {
		return 0, err
	}
	return r.st.BeginRescoring(ctx, begun)
}

// sweep ends verifiers that a killed process has left.
func (r *rescoring) sweep(ctx context.Context, number int) error {
	if !slices.ContainsFunc(r.with.Evaluators, func(d eval.Definition) bool { return d.Type == eval.TypeVerifier }) {
		return nil
	}
	ids, err := r.st.DueRollouts(ctx, r.runID, number)
	for i, id := range ids {
		ids[i] = rollout.Marker(r.st.ID(), id)
	}
	if err == nil {
		_, err = sandbox.Sweep(ids...)
	}
	return err
}

// score scores the due rollouts.
func (r *rescoring) score(ctx context.Context, host *rollout.Host, number int, o ScoreOptions) error {
	ids, err := r.st.DueRollouts(ctx, r.runID, number)
	if err != nil {
		return err
	}
	before, err := r.plan.ReadRescorings(r.earlier.Stored[:number-1])
	if err != nil {
		return err
	}
	plan := r.plan
	plan.Set.Evaluators, plan.Judges = r.with.Evaluators, r.with.Judges
	again := &rollout.Rescoring{Host: host, Number: number, WithoutWorkspaces: r.with.WithoutWorkspaces,
		Keeps: r.keeps(before),
		Same: func(def eval.Definition, earlier rollout.Earlier) bool {
			was, ok := before.Evaluator(earlier.Rescoring, def.ID)
			return ok && was.Digest() == def.Digest()
		}}
	concurrency := cmp.Or(o.Concurrency, DefaultConcurrency)
	var judges *judge.Judges
	if plan.Judges != nil {
		judges = r.judges(plan, o)
		concurrency = max(concurrency, plan.Judges.Concurrency()) // judges have limits of their own
	}
	if err := again.Prepare(plan, r.dir, judges, r.red); err != nil {
		return err
	}
	s := &scorer{rescoring: r, again: again, number: number}
	return errors.Join(s.run(ctx, ids, concurrency, o.Drain), again.Close())
}

// keeps returns a function that reports whether a result stays without asking again. before are the
// rescorings before this one. If results are outdated, or the last rescoring did not score a
// rollout, all evaluators are asked.
func (r *rescoring) keeps(before plans.Rescorings) func(*store.Rescorable, eval.Definition, rollout.Earlier) bool {
	return func(one *store.Rescorable, def eval.Definition, earlier rollout.Earlier) bool {
		switch {
		case before.Outdated(one.Rescoring), one.Unscored != "":
			return false
		case r.with.Failed:
			return !earlier.Failed()
		}
		return r.with.Only != nil && !slices.Contains(r.with.Only, def.ID)
	}
}

// judgeScored sets the verdict of a rescoring. Rollouts that were not scored again have a verdict
// of their own.
func (p planned) judgeScored(ctx context.Context, out *Scored) error {
	if out.Number > 0 {
		all, err := p.st.Rescorings(ctx, p.runID)
		if err != nil {
			return err
		}
		last := all[out.Number-1]
		out.Scored, out.NotScored, out.Due = last.Scored, last.Unscored, last.Due
	}
	if out.Due > 0 {
		out.Judgement = verdict.Interrupt()
		return nil
	}
	if out.NotScored == 0 || out.Verdict == Suspended {
		return nil
	}
	example, err := p.firstNotScored(ctx)
	of := out.NotScored + out.Scored
	out.Judgement = Judgement{Verdict: Faulted, Word: verdict.NotAllScored,
		Figures: fmt.Sprintf("%d of %s not scored again", out.NotScored, rollouts(of)),
		Reason:  fmt.Sprintf("%d of %s not scored again (%s)", out.NotScored, rollouts(of), example)}
	return err
}

func rollouts(n int) string {
	if n == 1 {
		return "1 rollout"
	}
	return fmt.Sprintf("%d rollouts", n)
}

// firstNotScored returns the first rollout that was not scored again, and the reason.
func (p planned) firstNotScored(ctx context.Context) (example string, err error) {
	err = p.st.Snapshot(ctx, p.runID, func(v store.View) error {
		example = ""
		return v.Rollouts(func(rv store.RolloutView) error {
			if rv.Unscored != "" && example == "" {
				example = p.red.String(rv.EvaluationName + ": " + rv.Unscored)
			}
			return nil
		})
	})
	return example, err
}
