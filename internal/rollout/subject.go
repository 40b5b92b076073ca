package rollout

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/record"
	"github.com/evalrun/evalrun/internal/sandbox"
	"github.com/evalrun/evalrun/internal/store"
)

// folderJudges is where a rollout's folder has what its judges were asked and have said.
const folderJudges = "judges"

func (h *held) judgeDir() string { return filepath.Join(h.dir(), folderJudges) }

// payer says for whom judges are paid: for the rollout's end, or for one of its rescorings.
func (h *held) payer() string {
	if h.rescoring == 0 {
		return h.claim.RolloutID
	}
	return fmt.Sprintf("%s#%d", h.claim.RolloutID, h.rescoring)
}

// subject is what the evaluators see of the rollout, whether its agent has just finished or it is
// scored again.
func (h *held) subject(segments []store.Segment, output json.RawMessage) (eval.Subject, error) {
	c := h.claim
	out := eval.Subject{
		RolloutID: c.RolloutID, Agent: c.Agent, Epoch: c.Epoch, Output: output, Evaluation: h.evaluation,
		Dir: h.run.Dir, Workspace: h.workspace(), Env: sandbox.Environ(nil),
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
	return out, nil
}

// defaultEvaluatorTimeout holds where limits.evaluatorTimeout is not given.
const defaultEvaluatorTimeout = 5 * time.Minute

// ask asks an evaluator for its verdict, or for the rest of it if what it has waited for is here.
func (run *Run) ask(ctx context.Context, e eval.Evaluator, subject eval.Subject,
	deliveries map[string]eval.Delivery) eval.Verdict {
	limit := run.Plan.Set.Limits.EvaluatorTimeout
	if limit == 0 {
		limit = defaultEvaluatorTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if len(deliveries) > 0 {
		return e.Resume(ctx, subject, deliveries)
	}
	return e.Evaluate(ctx, subject)
}
