package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/sandbox"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/workspace"
	"github.com/evalrun/evalrun/tasks"
)

// live runs an agent that lives in an environment, and reports which one that was.
func (w *worker) live(ctx context.Context, a agent.Agent, seg agent.Segment) (agent.Outcome, error) {
	out, err := w.runStages(ctx, a, seg)
	if out.Info != nil && w.evaluation.Task != nil {
		out.Info.Environment = agent.EnvironmentHost
	}
	return out, err
}

// runStages runs an agent once, or for a task of several steps once for each step, with the step's verifier after it. A step that was suspended
// is gone on with; its verifier runs at its end.
func (w *worker) runStages(ctx context.Context, a agent.Agent, seg agent.Segment) (agent.Outcome, error) {
	e, err := w.environmentOf()
	switch {
	case err != nil:
	case seg.Number == 1:
		err = e.populate()
	default:
		err = e.present()
	}
	if err != nil {
		return faultOrError(err)
	}
	stages := []tasks.Stage{{Instruction: promptOf(seg.Input)}}
	if e.task != nil {
		stages = e.task.Stages()
	}
	done, history, err := w.before(ctx)
	if err != nil {
		return agent.Outcome{}, err
	}
	info := agent.Info{Isolation: e.isolation, Steps: done}
	var files []string
	var limit *fault.Fault
	began, budget := time.Now(), seg.Timeout
	for i := len(done); i < len(stages); i++ {
		stage := &stages[i]
		if budget > 0 { // of all steps together
			if seg.Timeout = budget - time.Since(began) + time.Duration(info.HeldMs)*time.Millisecond; seg.Timeout <= 0 {
				info.Steps = done
				return agent.Outcome{Fault: fault.Newf(fault.Timeout, "no time was left for step %s (limits.timeout)", stage.Name),
					Info: &info, Files: files}, nil
			}
		}
		out, err := w.stage(ctx, a, seg, e, stage, history)
		if err != nil {
			return out, err
		}
		history = nil
		for _, f := range out.Files {
			files = append(files, filepath.Join(stepFolder(stage), f))
		}
		info.Add(out.Info)
		if limit == nil {
			limit = out.Limit
		}
		info.Limit = limit // also if a later step kept to its own
		last := i == len(stages)-1
		if out.Output == nil || stage.Name == "" {
			info.Steps = done
			out.Files, out.Info = files, &info
			return out, nil
		}
		result, err := w.verifyStep(ctx, e, stage)
		switch {
		case err != nil && ctx.Err() != nil:
			return agent.Outcome{Fault: causeOf(ctx), Info: &info, Files: files}, nil
		case err != nil:
			return faultOrError(err)
		}
		done = append(done, result)
		info.Steps = done
		if unmet := stage.MinReward.Unmet(rewardOf(result)); unmet != "" || last {
			out.Files, out.Info = files, &info
			return out, nil
		}
		if ctx.Err() != nil {
			return agent.Outcome{Fault: causeOf(ctx), Info: &info, Files: files}, nil
		}
	}
	return agent.Outcome{}, fmt.Errorf("the task has no step left after %d", len(done)) // not reached
}

func rewardOf(r agent.StepResult) *tasks.Reward {
	if r.Reward == nil {
		return nil
	}
	return &tasks.Reward{Value: *r.Reward, Metrics: r.Metrics}
}

// faultOrError tells what is wrong with the task or the agent from what is wrong with us.
func faultOrError(err error) (agent.Outcome, error) {
	var f *fault.Fault
	if errors.As(err, &f) {
		return agent.Outcome{Fault: f}, nil
	}
	return agent.Outcome{}, err
}

func causeOf(ctx context.Context) *fault.Fault {
	var f *fault.Fault
	if errors.As(context.Cause(ctx), &f) {
		return f
	}
	return fault.New(fault.Interrupted, "the agent was ended")
}

// stepFolder is where a step's files are in the folder of a segment.
func stepFolder(stage *tasks.Stage) string {
	if stage.Name == "" {
		return ""
	}
	return filepath.Join("steps", stage.Name)
}

// before is what the segments before have left: the steps that are done, and the folders of those that the conversation goes on from.
func (w *worker) before(ctx context.Context) (done []agent.StepResult, history []string, err error) {
	if w.claim.Segment == 1 {
		return nil, nil, nil
	}
	segments, err := w.o.Store.Segments(context.WithoutCancel(ctx), w.claim.RolloutID)
	if err != nil {
		return nil, nil, err
	}
	for _, g := range segments {
		if g.Outcome != store.OutcomeSuspended {
			continue
		}
		var info agent.Info
		if err := json.Unmarshal(g.Info, &info); err != nil {
			return nil, nil, fmt.Errorf("segment %d: %w", g.Number, err)
		}
		if len(info.Steps) > len(done) {
			history = nil // a step has ended since, and its conversation with it
		}
		done = info.Steps
		dir := workspace.SegmentDir(w.o.Store.Dir(), w.claim.RunID, w.claim.RolloutID, g.Number, g.Attempt)
		for _, f := range g.Files {
			if filepath.Base(f.Name) == agent.FileSession {
				history = append(history, filepath.Join(dir, filepath.Dir(filepath.FromSlash(f.Name))))
			}
		}
	}
	// Of several steps that one segment ended, only the last was suspended.
	if len(history) > 1 && len(done) > 0 {
		last := filepath.Base(history[len(history)-1])
		history = slices.DeleteFunc(history, func(dir string) bool { return filepath.Base(dir) != last })
	}
	return done, history, nil
}

// stage runs the agent for one stage.
func (w *worker) stage(ctx context.Context, a agent.Agent, seg agent.Segment, e *environment, stage *tasks.Stage, history []string) (agent.Outcome, error) {
	first := history == nil
	if first && stage.Workdir != "" {
		below, rel := e.place(e.workdir())
		if err := workspace.CopyIn(stage.Workdir, below, rel); err != nil {
			return agent.Outcome{}, err
		}
	}
	place, err := w.agentPlace(e, stage, first)
	if err != nil {
		return faultOrError(err)
	}
	if place.Sockets, err = socketFolder(w.claim.RolloutID); err != nil {
		return agent.Outcome{}, err
	}
	defer func() { _ = os.RemoveAll(place.Sockets) }() // nothing but sockets
	seg.Place, seg.History = place, history
	seg.Prompt = stage.Instruction
	if p := stage.Agent.PromptPrefix; p != "" {
		seg.Prompt = p + "\n\n" + seg.Prompt
	}
	if first {
		seg.Resume, seg.Deliveries = nil, nil
	}
	seg.Servers, seg.Hosted = project(e.servers, &place.Space)
	seg.Gateway, w.declared = w.behindGateway(e), e.declared
	if limit := stage.Agent.TimeoutSec.Duration(); limit > 0 {
		if stage.Name == "" { // of a step nobody has kept how long it has worked
			limit = max(limit-w.claim.Clocks.Working, time.Millisecond)
		}
		seg.Timeout = lesser(seg.Timeout, limit)
	}
	if stage.Name != "" {
		seg.Dir = filepath.Join(seg.Dir, stepFolder(stage))
		seg.Ended = nil // another step may follow
		if err := os.MkdirAll(seg.Dir, 0o700); err != nil {
			return agent.Outcome{}, err
		}
	}
	if w.entry.Type == agent.TypeOracle {
		if err := w.addSolution(e, stage, place, &seg); err != nil {
			return faultOrError(err)
		}
		defer func() { _ = os.RemoveAll(e.dir(workspace.FolderSolution)) }() // left over by a crash it is hidden all the same
	}
	for _, name := range w.plan.Env {
		if value, ok := w.o.Resolve(name); ok && w.entry.Type == agent.TypeACP {
			seg.Env = append(seg.Env, name+"="+value)
		}
	}
	return a.Run(ctx, seg)
}

// socketFolder makes the folder for the sockets of a rollout, in place of what a process that was killed has left of it. It is not in the store, since
// the paths of sockets must be short.
func socketFolder(rolloutID string) (string, error) {
	sum := sha256.Sum256([]byte(rolloutID))
	prefix := "evalrun-" + hex.EncodeToString(sum[:8]) + "-"
	left, err := filepath.Glob(filepath.Join(os.TempDir(), prefix+"*"))
	for _, dir := range left {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	if err != nil {
		return "", err
	}
	return os.MkdirTemp("", prefix)
}

// addSolution gives the oracle the task's solution.
func (w *worker) addSolution(e *environment, stage *tasks.Stage, place *agent.Place, seg *agent.Segment) error {
	if stage.Solution == "" {
		return nil
	}
	if e.workdir() == insideSolution { // then it lies among the other files
		if err := workspace.CopyIn(stage.Solution, e.dir(workspace.FolderWorkspace), ""); err != nil {
			return err
		}
	} else {
		dir := e.dir(workspace.FolderSolution)
		if err := errors.Join(os.RemoveAll(dir), workspace.CopyIn(stage.Solution, dir, "")); err != nil {
			return err
		}
		place.Space.Binds = append(place.Space.Binds, sandbox.Bind{Host: dir, Inside: insideSolution})
	}
	env, err := tasks.ExpandEnv("solution.env", e.task.Config.Solution.Env, e.lookup)
	if err != nil {
		return fault.New(fault.Setup, err.Error())
	}
	place.Env = e.environ(&place.Space)
	seg.Solution = &agent.Script{Path: place.Space.Path(insideSolution + "/solve.sh"), Env: variables(env)}
	seg.Timeout = lesser(seg.Timeout, e.task.Config.Solution.TimeoutSec.Duration())
	return nil
}

// lesser is the lesser of two limits, of which 0 means none.
func lesser(a, b time.Duration) time.Duration {
	if a <= 0 || b > 0 && b < a {
		return b
	}
	return a
}

// promptOf makes a prompt of an evaluation's input: its prompt or instruction, its only text, or all of it.
func promptOf(in json.RawMessage) string {
	var members map[string]json.RawMessage
	if json.Unmarshal(in, &members) != nil {
		return string(in)
	}
	text := func(raw json.RawMessage) (s string, ok bool) { return s, raw != nil && json.Unmarshal(raw, &s) == nil }
	for _, key := range []string{"prompt", "instruction"} {
		if s, ok := text(members[key]); ok {
			return s
		}
	}
	if len(members) == 1 {
		for _, raw := range members {
			if s, ok := text(raw); ok {
				return s
			}
		}
	}
	return string(in)
}
