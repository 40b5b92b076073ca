package rollout

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/record"
	"github.com/evalrun/evalrun/tasks"
)

// runInSandbox runs an agent that needs a sandbox.
func (r *Rollout) runInSandbox(ctx context.Context, a agent.Agent, seg agent.Segment,
	spec *sandboxSpec) (out agent.Outcome, err error) {
	begin := spec.present
	if seg.Number == 1 && seg.GoesOnFrom == "" {
		begin = spec.populate
	}
	err = begin()
	if err == nil {
		err = spec.startServices(ctx, r.held)
	}
	if err != nil {
		return faultOrError(err)
	}
	r.declared = spec.declared
	stages := []tasks.Stage{{Instruction: promptOf(seg.Input)}}
	if spec.task != nil {
		stages = spec.task.Stages()
	}
	done, history, err := r.held.previousSegments(ctx)
	if err != nil {
		return agent.Outcome{}, err
	}
	s := &stageRunner{held: r.held, agent: a, spec: spec, disk: r.held.newDiskLimit(spec), segment: seg, history: history,
		info: record.Info{Isolation: spec.isolation, Steps: done}}
	out, err = s.run(ctx, stages[min(len(done), len(stages)):])
	// Otherwise the tests need them. In a daemon they end with the container of the agent, when both were kept.
	if out.Output == nil && r.held.remote == nil {
		err = errors.Join(err, r.held.endServices(context.WithoutCancel(ctx)))
	}
	if out.Info != nil && spec.task != nil {
		out.Info.Environment, out.Info.WithoutEffect = record.EnvironmentHost, withoutEffect(spec)
		if spec.image != nil {
			out.Info.Environment, out.Info.Image = record.EnvironmentImage, spec.image.Digest
		}
	}
	return out, err
}

// stageRunner runs an agent in a sandbox: once, or for a task of several steps once for each step
// with the step's verifier after it. A suspended step is resumed, and its verifier runs at its end.
type stageRunner struct {
	held    *held
	agent   agent.Agent
	spec    *sandboxSpec
	segment agent.Segment
	disk    diskLimit
	// history lists the folders of the segments from which the next stage resumes.
	history []string
	// info, files and limit are the results of the stages so far.
	info  record.Info
	files []string
	limit *fault.Fault
}

// run runs the remaining stages.
func (s *stageRunner) run(ctx context.Context, stages []tasks.Stage) (agent.Outcome, error) {
	began, budget := time.Now(), s.segment.Timeout
	for i := range stages {
		stage := &stages[i]
		if budget > 0 { // the budget is for all steps together
			s.segment.Timeout = budget - time.Since(began) + time.Duration(s.info.HeldMs)*time.Millisecond
			if s.segment.Timeout <= 0 {
				return s.faulted(fault.Newf(fault.Timeout, "no time was left for step %s (limits.timeout)", stage.Name)), nil
			}
		}
		out, err := s.disk.run(ctx, func(ctx context.Context) (agent.Outcome, error) { return s.runStage(ctx, stage) })
		if err != nil {
			return faultOrError(err)
		}
		s.add(stage, &out)
		if out.Output == nil || stage.Name == "" {
			return out, nil
		}
		result, err := (&verifier{s.held, s.spec}).runStep(ctx, stage)
		switch {
		case err != nil && ctx.Err() != nil:
			return s.faulted(causeOf(ctx)), nil
		case err != nil:
			return faultOrError(err)
		}
		s.info.Steps = append(s.info.Steps, result)
		if unmet := stage.MinReward.Unmet(rewardOf(result)); unmet != "" || i == len(stages)-1 {
			return out, nil
		}
		if ctx.Err() != nil {
			return s.faulted(causeOf(ctx)), nil
		}
	}
	return agent.Outcome{}, fmt.Errorf("the task has no step left after %d", len(s.info.Steps)) // not reached
}

// add adds the results of a stage to those of the stages before, and puts them into the outcome.
func (s *stageRunner) add(stage *tasks.Stage, out *agent.Outcome) {
	s.history = nil
	for _, f := range out.Files {
		s.files = append(s.files, filepath.Join(stepFolder(stage), f))
	}
	s.info.Add(out.Info)
	if s.limit == nil {
		s.limit = out.Limit
	}
	s.info.Limit = s.limit // the limit stays even if a later step kept to its own
	out.Files, out.Info = s.files, &s.info
}

// faulted returns the outcome of all stages if one of them cannot be run.
func (s *stageRunner) faulted(f *fault.Fault) agent.Outcome {
	return agent.Outcome{Fault: f, Info: &s.info, Files: s.files}
}

func rewardOf(r record.StepResult) *tasks.Reward {
	if r.Reward == nil {
		return nil
	}
	return &tasks.Reward{Value: *r.Reward, Name: r.RewardName, Metrics: r.Metrics}
}

func causeOf(ctx context.Context) *fault.Fault {
	var f *fault.Fault
	if errors.As(context.Cause(ctx), &f) {
		return f
	}
	return fault.New(fault.Interrupted, "the agent was ended")
}

// stepFolder returns the folder of a step's files in the folder of a segment.
func stepFolder(stage *tasks.Stage) string {
	if stage.Name == "" {
		return ""
	}
	return filepath.Join(record.FolderSteps, stage.Name)
}
