package rollout

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/record"
	"github.com/evalrun/evalrun/internal/workspace"
	"github.com/evalrun/evalrun/tasks"
)

// verify returns the reward of a rollout's task as the result of an evaluator. An error that is a
// *fault.Fault means that there is no reward.
func (s *scoring) verify(ctx context.Context) ([]eval.Result, error) {
	if s.held.evaluation.Task == nil {
		return nil, nil
	}
	started := time.Now()
	spec, err := s.held.newSandboxSpec(ctx, false)
	if err != nil {
		return nil, err
	}
	defer spec.release()
	stages := spec.task.Stages()
	var reward tasks.Reward
	var notes []string
	if stages[0].Name == "" {
		if err := (verifierCopy{s.held}).restore(); err != nil {
			return nil, err
		}
		if notes, err = spec.startServicesAgain(ctx, s.held); err != nil {
			return nil, err
		}
		again := notes
		if reward, notes, err = (&verifier{s.held, spec}).run(ctx, &stages[0]); err != nil {
			return nil, err
		}
		notes = append(again, notes...)
	} else if reward, err = s.stepRewards(ctx, spec.task); err != nil {
		return nil, err
	}
	result := eval.Result{EvaluatorID: eval.Verifier.ID, EvaluatorName: eval.Verifier.Name, Score: &reward.Value, Scale: 1,
		StartedAt: started.UTC().Truncate(time.Microsecond), Duration: time.Since(started)}
	if reward.Metrics != nil || reward.Details != nil || notes != nil || reward.Suspicious != "" {
		details := eval.VerifierDetails{Details: reward.Details, Metrics: reward.Metrics, Notes: notes,
			RewardName: reward.Name, Suspicious: reward.Suspicious}
		if result.Details, err = json.Marshal(details); err != nil {
			return nil, err
		}
	}
	return []eval.Result{result}, nil
}

// stepRewards combines the rewards of the steps, whose verifiers ran at their ends.
func (s *scoring) stepRewards(ctx context.Context, task *tasks.Task) (tasks.Reward, error) {
	segments, err := s.held.host.Store.Segments(context.WithoutCancel(ctx), s.held.claim.RolloutID)
	if err != nil {
		return tasks.Reward{}, err
	}
	var info record.Info
	for _, g := range segments {
		if g.Info != nil {
			info = record.Info{}
			if err := json.Unmarshal(g.Info, &info); err != nil {
				return tasks.Reward{}, err
			}
		}
	}
	var rewards []tasks.Reward
	for _, step := range info.Steps {
		if step.Reward == nil {
			return tasks.Reward{}, fault.Newf(fault.Verifier, "step %s: %s", step.Name, step.Error)
		}
		rewards = append(rewards, tasks.Reward{Value: *step.Reward, Name: step.RewardName, Metrics: step.Metrics})
	}
	combined := tasks.CombineRewards(task.Config.MultiStepRewardStrategy, rewards)
	combined.Details, err = json.Marshal(map[string]any{"steps": info.Steps})
	return combined, err
}

// verifierCopy is a copy of the files that the agent has left. A verifier may change all of them,
// and one that was broken off is repeated on the copy.
type verifierCopy struct{ held *held }

// dir returns the folder of the copy, unless that is a snapshot over an image.
func (c verifierCopy) dir() string { return filepath.Join(c.held.root(), "verified") }

// removeUnlessKept removes the copy, unless the run keeps the agents' files; then the verifier can
// be run on it again.
func (c verifierCopy) removeUnlessKept() error {
	h := c.held
	if h.run.Plan.KeepWorkspaces {
		return nil
	}
	return errors.Join(workspace.Remove(c.dir()), os.RemoveAll(layers{h}.snapshots().Dir))
}

// exists reports whether there is a copy on which the verifier can be run again.
func (c verifierCopy) exists() bool {
	h := c.held
	_, err := os.Lstat(c.dir())
	return err == nil || layers{h}.snapshots().Has(verifierSnapshot)
}

// restore makes the copy. If an earlier verifier was ended in the middle, it restores the agent's
// files from the copy. The verifier of a step needs no copy, since its whole segment is repeated.
func (c verifierCopy) restore() error {
	h := c.held
	root, saved := h.root(), c.dir()
	names := forVerifier(h.layout().Kept())
	if h.overImage() || h.endIsShared() {
		return layers{h}.restore(verifierSnapshot, names)
	}
	if _, err := os.Lstat(saved); err == nil {
		return workspace.Restore(saved, root, names)
	}
	for _, name := range names {
		workspace.Reclaim(filepath.Join(root, name))
	}
	err := workspace.Snapshot(root, saved, names)
	if errors.Is(err, fs.ErrPermission) || workspace.IsBadName(err) {
		// The verifier runs all the same, since an agent could otherwise escape its verdict by the
		// files that it leaves.
		h.host.Logger.Warn("what the agent has left cannot be copied; a verifier that is interrupted will be repeated on what it has made of it",
			"rollout", h.claim.RolloutID, "reason", workspace.Shorten(err.Error()))
		return nil
	}
	return err
}
