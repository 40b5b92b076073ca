package rollout

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/record"
	"github.com/evalrun/evalrun/internal/sandbox"
	"github.com/evalrun/evalrun/internal/store"
)

// folderJudges is the subfolder of a rollout with the questions to its judges and their answers.
const folderJudges = "judges"

func (h *held) judgeDir() string { return filepath.Join(h.dir(), folderJudges) }

// payer returns the one for whom judges are paid: the rollout's end, or one of its rescorings.
func (h *held) payer() string {
	if h.rescoring == 0 {
		return h.claim.RolloutID
	}
	return fmt.Sprintf("%s#%d", h.claim.RolloutID, h.rescoring)
}

// subject returns the evaluators' view of the rollout, whether its agent has just finished or it is
// scored again.
func (h *held) subject(segments []store.Segment, output json.RawMessage) (eval.Subject, error) {
	c := h.claim
	out := eval.Subject{
		RolloutID: c.RolloutID, Agent: c.Agent, Epoch: c.Epoch, Output: output, Evaluation: h.evaluation,
		Dir: h.run.Dir, Workspace: h.workspace(), Env: sandbox.Environ(nil),
		Python: h.run.python,
	}
	if h.run.Judges != nil {
		out.Judge = h.run.Judges.Of(c.Agent, h.judgeDir(), h.payer())
	}
	for _, g := range segments {
		if g.Outcome != store.OutcomeCompleted && g.Outcome != store.OutcomeSuspended {
			continue
		}
		var segment []json.RawMessage
		for _, dir := range record.TraceDirs(h.attemptDir(g.Number, g.Attempt), g.Files) {
			spans, skipped, err := record.ReadTrace(dir)
			if err != nil {
				return out, err
			}
			if skipped > 0 {
				h.host.Logger.Warn("lines of the trace are not JSON objects and were left out",
					"rollout", c.RolloutID, "lines", skipped)
			}
			segment = append(segment, spans...)
		}
		out.Trace = append(out.Trace, segment)
	}
	if h.hasChecks() {
		var err error
		if out.Working, out.Usage, err = h.figures(segments); err != nil {
			return out, err
		}
	}
	return out, nil
}

// hasChecks reports whether an evaluator of the set may ask for time and use of models.
func (h *held) hasChecks() bool {
	return slices.ContainsFunc(h.run.Plan.Set.Evaluators, func(d eval.Definition) bool { return d.Type == eval.TypeChecks })
}

// figures returns the working time of all attempts of a rollout, and their use of models with its cost.
func (h *held) figures(segments []store.Segment) (working time.Duration, used []eval.Usage, err error) {
	var dirs []string
	for _, g := range segments {
		dir := h.attemptDir(g.Number, g.Attempt)
		one, _, err := record.UsageOfSegment(g, dir, dirs)
		if err != nil {
			return 0, nil, err
		}
		used, dirs = append(used, one...), append(dirs, dir)
		if !g.StartedAt.IsZero() && g.EndedAt.After(g.StartedAt) {
			working += g.EndedAt.Sub(g.StartedAt)
		}
		var info record.Info
		if h.run.outputs != nil && g.Info != nil && json.Unmarshal(g.Info, &info) == nil && info.Cached != nil {
			working += time.Duration(info.Cached.WorkingMs) * time.Millisecond
		}
	}
	return working, h.run.Plan.Set.Prices.PricedAll(used), nil
}

// defaultEvaluatorTimeout applies if limits.evaluatorTimeout is not given.
const defaultEvaluatorTimeout = 5 * time.Minute

// limitEvaluator limits what an evaluator, or a question to a model, may take.
func (run *Run) limitEvaluator(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, cmp.Or(run.Plan.Set.Limits.EvaluatorTimeout, defaultEvaluatorTimeout))
}

// ask asks an evaluator for its verdict, or for the rest of it if its deliveries have arrived.
func (run *Run) ask(ctx context.Context, e eval.Evaluator, subject eval.Subject,
	deliveries map[string]eval.Delivery) eval.Verdict {
	ctx, cancel := run.limitEvaluator(ctx)
	defer cancel()
	if len(deliveries) > 0 {
		return e.Resume(ctx, subject, deliveries)
	}
	return e.Evaluate(ctx, subject)
}
