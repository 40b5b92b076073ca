package rollout

import (
	"context"
	"encoding/json"

	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/wait"
)

// player decides what is played for the triggers of a suspension.
type player struct {
	r *Rollout
	// open holds what is played for the jobs that were waited for before, by their interrupts and
	// digests. jobs has the number of the last job of each process.
	open map[string]wait.Played
	jobs map[string]int
}

// newPlayer reads which jobs of the rollout were played before, if any are.
func (r *Rollout) newPlayer(ctx context.Context) (*player, error) {
	p := &player{r: r, open: map[string]wait.Played{}, jobs: map[string]int{}}
	if !r.held.run.Plan.Jobs.Played() {
		return p, nil
	}
	return p, r.held.host.Store.Snapshot(ctx, r.held.claim.RunID, func(v store.View) error {
		clear(p.jobs)
		clear(p.open)
		rv, err := v.Rollout(r.held.claim.RolloutID)
		if err != nil {
			return err
		}
		for _, t := range rv.Triggers {
			var spec wait.Spec
			if err := json.Unmarshal(t.Spec, &spec); err != nil {
				return err
			}
			if spec.Played == nil || spec.Played.Number == 0 {
				continue
			}
			p.jobs[spec.Process] = max(p.jobs[spec.Process], spec.Played.Number)
			if t.State.IsOpen() {
				p.open[t.InterruptID+" "+spec.Digest()] = *spec.Played
			}
		}
		return nil
	})
}

// of returns the source of a trigger and what is played for it; nil if nothing is. A job that the
// agent still waits for stays the same one.
func (p *player) of(interruptID string, spec wait.Spec, source string) (string, *wait.Played) {
	held := p.r.held
	switch source {
	case wait.SourceFixed:
		if same, ok := p.open[interruptID+" "+spec.Digest()]; ok {
			return source, &same
		}
		p.jobs[spec.Process]++
		return source, held.run.Plan.Jobs.Job(spec.Process, p.jobs[spec.Process])
	case wait.SourceExternal:
		if played := held.run.Plan.Answers.For(wait.AskedQuestion{EvaluationID: held.evaluation.ID,
			EvaluationName: held.evaluation.Name, InterruptID: interruptID, Spec: spec}); played != nil {
			return wait.SourceFixed, played
		}
	}
	return source, nil
}
