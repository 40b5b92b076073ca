package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/durable"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/sandbox"
	"github.com/evalrun/evalrun/internal/workspace"
	"github.com/evalrun/evalrun/tasks"
)

// verifierLog holds what a verifier printed.
const verifierLog = "test-stdout.txt"

// defaultVerifierTimeout holds where a step of a task says nothing.
const defaultVerifierTimeout = 10 * time.Minute

// verify gives the reward of a rollout's task as the result of an evaluator. An error that is an *agent.Fault means that there is none.
func (w *worker) verify(ctx context.Context) ([]eval.Result, error) {
	if w.evaluation.Task == nil {
		return nil, nil
	}
	started := time.Now()
	e, err := w.environmentOf()
	if err != nil {
		return nil, err
	}
	stages := e.task.Stages()
	var reward tasks.Reward
	var notes []string
	if stages[0].Name == "" {
		if err := w.asTheAgentLeftIt(); err != nil {
			return nil, err
		}
		if reward, notes, err = w.runVerifier(ctx, e, &stages[0]); err != nil {
			return nil, err
		}
	} else if reward, err = w.stepRewards(ctx, e); err != nil {
		return nil, err
	}
	result := eval.Result{EvaluatorID: eval.Verifier.ID, EvaluatorName: eval.Verifier.Name, Score: &reward.Value, Scale: 1, Duration: time.Since(started)}
	if reward.Metrics != nil || reward.Details != nil || notes != nil {
		details := map[string]any{"metrics": reward.Metrics, "details": reward.Details}
		if notes != nil {
			details["notes"] = notes
		}
		if result.Details, err = json.Marshal(details); err != nil {
			return nil, err
		}
	}
	return []eval.Result{result}, nil
}

// verified is the copy of what the agent has left, for a verifier that has to be repeated: it may have changed all of it.
func (w *worker) verified() string { return filepath.Join(w.root(), "verified") }

// asTheAgentLeftIt keeps a copy of what the agent has left, or restores it if a verifier before was ended in the middle. The verifier of a step needs
// none: its whole segment is repeated.
func (w *worker) asTheAgentLeftIt() error {
	names := slices.DeleteFunc(slices.Clone(workspace.Kept), func(name string) bool { return name == workspace.FolderHome })
	if _, err := os.Lstat(w.verified()); err == nil {
		return workspace.Restore(w.verified(), w.root(), names)
	}
	for _, name := range names {
		workspace.Reclaim(filepath.Join(w.root(), name))
	}
	err := workspace.Snapshot(w.root(), w.verified(), names)
	if errors.Is(err, fs.ErrPermission) || workspace.IsBadName(err) {
		// It is verified all the same: else an agent could escape its verdict by what it leaves.
		w.o.Logger.Warn("what the agent has left cannot be copied; a verifier that is interrupted will be repeated on what it has made of it", "rollout", w.claim.RolloutID, "reason", workspace.Shorten(err.Error()))
		return nil
	}
	return err
}

// stepRewards combines what the steps have earned; their verifiers ran at their ends.
func (w *worker) stepRewards(ctx context.Context, e *environment) (tasks.Reward, error) {
	segments, err := w.o.Store.Segments(context.WithoutCancel(ctx), w.claim.RolloutID)
	if err != nil {
		return tasks.Reward{}, err
	}
	var info agent.Info
	for _, g := range segments {
		if g.Info != nil {
			info = agent.Info{}
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
		rewards = append(rewards, tasks.Reward{Value: *step.Reward, Metrics: step.Metrics})
	}
	combined := tasks.CombineRewards(e.task.Config.MultiStepRewardStrategy, rewards)
	combined.Details, err = json.Marshal(map[string]any{"steps": info.Steps})
	return combined, err
}

// verifyStep runs the verifier of a step. That it left no reward is a result as well.
func (w *worker) verifyStep(ctx context.Context, e *environment, stage *tasks.Stage) (agent.StepResult, error) {
	out := agent.StepResult{Name: stage.Name}
	reward, notes, err := w.runVerifier(ctx, e, stage)
	out.Notes = notes
	var f *fault.Fault
	switch {
	case errors.As(err, &f) && f.Category == fault.Verifier:
		out.Error = f.Message
	case err != nil:
		return out, err
	default:
		out.Reward, out.Metrics = &reward.Value, reward.Metrics
	}
	return out, nil
}

// runVerifier keeps what the agent has left for it, runs the task's tests and reads their reward. No process of the agent is left by now. The notes say
// what could not be kept; a fault's message has them too.
func (w *worker) runVerifier(ctx context.Context, e *environment, stage *tasks.Stage) (reward tasks.Reward, notes []string, err error) {
	defer func() {
		var f *fault.Fault
		if errors.As(err, &f) && len(notes) > 0 {
			f.Message += "; not kept: " + strings.Join(notes, "; ")
		} else if len(notes) > 0 {
			w.o.Logger.Warn("not everything that the agent left was kept", "rollout", w.claim.RolloutID, "notes", strings.Join(notes, "; "))
		}
	}()
	into := filepath.Join(workspace.RolloutDir(w.o.Store.Dir(), w.claim.RunID, w.claim.RolloutID), stepFolder(stage))
	// What an attempt before has left is not this one's.
	if err := errors.Join(os.RemoveAll(filepath.Join(into, "artifacts")), os.RemoveAll(filepath.Join(into, "verifier")), workspace.TakeBack(e.root, workspace.Kept)); err != nil {
		return reward, nil, err
	}
	if err := w.collect(ctx, e, stage); err != nil {
		return reward, nil, err
	}
	if notes, err = w.keepArtifacts(e, stage, filepath.Join(into, "artifacts")); err != nil {
		return reward, nil, err
	}
	if stage.Verifier.Separate() {
		if e, err = e.separate(stage); err != nil {
			return reward, notes, err
		}
	}
	defer e.clearVerifier() // the agent of a next step must see neither the tests nor what they said
	command, err := w.verifierCommand(e, stage)
	if err != nil {
		return reward, notes, err
	}
	timeout := stage.Verifier.TimeoutSec.Duration()
	if timeout <= 0 {
		timeout = defaultVerifierTimeout
	}
	running, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	log := filepath.Join(into, "verifier", verifierLog)
	exit, err := w.runLogged(running, command, log)
	results := filepath.Join(e.dir(workspace.FolderLogs), "verifier")
	switch {
	case ctx.Err() != nil:
		return reward, notes, ctx.Err()
	case err != nil:
		return reward, notes, fault.New(fault.Verifier, "the verifier could not be started: "+err.Error())
	case running.Err() != nil:
		err = fmt.Errorf("the verifier took longer than %v and was ended (verifier.timeout_sec)", timeout)
	}
	workspace.Reclaim(results)
	logs := workspace.NewCopyOut(nil, w.filter())
	if err := logs.Copy(e.dir(workspace.FolderLogs), "verifier", filepath.Join(into, "verifier")); err != nil { // the folder itself may have become a link
		return reward, notes, err
	}
	notes = append(notes, logs.Notes...)
	if err == nil {
		reward, err = tasks.ReadReward(results, stage.Verifier.Range())
	}
	if err != nil {
		if exit.State != nil && !exit.State.Success() {
			err = fmt.Errorf("%w; it ended with %s", err, exit.State)
		}
		return tasks.Reward{}, notes, fault.Newf(fault.Verifier, "%v; what it printed is in %s", err, filepath.Base(filepath.Dir(log))+"/"+verifierLog)
	}
	return reward, notes, nil
}

// clearVerifier removes what was there for the verifier alone. What cannot be removed now is before the next one runs.
func (e *environment) clearVerifier() {
	for _, dir := range []string{workspace.FolderTests, workspace.FolderVerifier, workspace.FolderLogs + "/verifier"} {
		_ = os.RemoveAll(e.dir(dir))
	}
}

// verifierCommand is the task's test script in the environment, with a fresh home, the tests in their place and an empty log folder.
func (w *worker) verifierCommand(e *environment, stage *tasks.Stage) (sandbox.Command, error) {
	home, results := e.dir(workspace.FolderVerifier), filepath.Join(e.dir(workspace.FolderLogs), "verifier")
	for _, dir := range []string{home, results, e.dir(workspace.FolderTests)} {
		if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o700)); err != nil {
			return sandbox.Command{}, err
		}
	}
	for _, dir := range stage.Tests {
		if err := workspace.CopyIn(dir, e.dir(workspace.FolderTests), ""); err != nil {
			return sandbox.Command{}, err
		}
	}
	space, err := e.space(stage.Verifier.Network, stage.Verifier.User)
	if err != nil {
		return sandbox.Command{}, err
	}
	space.Binds = append(space.Binds, sandbox.Bind{Host: e.dir(workspace.FolderTests), Inside: insideTests, Writable: true}, sandbox.Bind{Host: home, Inside: "/home/verifier", Writable: true})
	own, err := tasks.ExpandEnv("verifier.env", stage.Verifier.Env, e.lookup)
	if err != nil {
		return sandbox.Command{}, fault.New(fault.Verifier, err.Error())
	}
	script := space.Path(insideTests + "/test.sh")
	env := append([]string{"PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8", "TERM=dumb", "HOME=" + space.Path("/home/verifier"), "TMPDIR=/tmp", "PYTHONDONTWRITEBYTECODE=1"}, e.environ(&space)...)
	return sandbox.Command{
		RolloutID: w.marker(w.claim.RolloutID), Path: "/bin/bash", Args: []string{"bash", script}, Dir: space.Path(e.workdir()), Env: append(env, variables(own)...),
		Space: &space, Executable: w.o.Executable,
	}, nil
}

// maxLog is how much of what a verifier or a collecting command prints is kept.
const maxLog = 4 << 20

// runLogged runs a command and keeps what it prints, through the redaction.
func (w *worker) runLogged(ctx context.Context, c sandbox.Command, path string) (exit sandbox.Exit, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return exit, err
	}
	err = durable.WriteFile(path, 0o600, func(out io.Writer) error {
		limited := &limitedWriter{w: out, left: maxLog}
		through := io.WriteCloser(nopCloser{limited})
		if filter := w.filter(); filter != nil {
			through = filter(limited)
		}
		both := &lockedWriter{w: through}
		c.Stdout, c.Stderr = both, both
		var runErr error
		exit, runErr = sandbox.Run(ctx, c)
		return errors.Join(runErr, through.Close())
	})
	return exit, err
}

// collect runs the task's own commands that gather what the tests need, where the agent ran.
func (w *worker) collect(ctx context.Context, e *environment, stage *tasks.Stage) error {
	for i, c := range stage.Verifier.Collect {
		space, err := e.space(stage.Agent.Network, c.User)
		if err != nil {
			return err
		}
		running, cancel := context.WithTimeout(ctx, c.TimeoutSec.Duration())
		command := sandbox.Command{
			RolloutID: w.marker(w.claim.RolloutID), Path: "/bin/sh", Args: []string{"sh", "-c", c.Command}, Dir: space.Path(e.workdir()),
			Env: append([]string{"PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8", "HOME=/tmp"}, e.environ(&space)...), Space: &space, Executable: w.o.Executable,
		}
		log := filepath.Join(workspace.RolloutDir(w.o.Store.Dir(), w.claim.RunID, w.claim.RolloutID), stepFolder(stage), fmt.Sprintf("collect-%d.log", i+1))
		exit, err := w.runLogged(running, command, log)
		timedOut := running.Err() != nil
		cancel()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return fault.Newf(fault.Verifier, "verifier.collect[%d]: %v", i, err)
		case timedOut, !exit.State.Success():
			w.o.Logger.Warn("a collecting command failed", "rollout", w.claim.RolloutID, "command", i, "log", log)
		}
	}
	return nil
}

// keepArtifacts copies the task's artifacts, and what the agent has put into /logs/artifacts, out of the environment, through the redaction. The notes
// say what is missing and what was left out.
func (w *worker) keepArtifacts(e *environment, stage *tasks.Stage, to string) (notes []string, err error) {
	err = e.eachArtifact(stage, func(a tasks.Artifact, below, rel string) error {
		destination := a.Destination
		if destination == "" {
			destination = path.Clean("/" + a.Source)[1:]
		}
		x := workspace.NewCopyOut(a.Exclude, w.filter())
		if below != "" {
			if err := x.Copy(below, rel, filepath.Join(to, filepath.FromSlash(destination))); err != nil {
				return err
			}
		}
		switch {
		case below == "":
			x.Note(".", "missing; without isolation, only what is in the folders of the rollout is kept")
		case !x.Found && a.Source != everyArtifacts.Source: // which is every task's, and need not be used
			x.Note(".", "missing; nothing was left at this path")
		}
		for _, note := range x.Notes {
			notes = append(notes, "artifact "+a.Source+": "+note)
		}
		return nil
	})
	return notes, err
}

// everyArtifacts is a folder whose content is among the artifacts of every task.
var everyArtifacts = tasks.Artifact{Source: insideLogs + "/artifacts", Destination: "."}

// eachArtifact calls f for every artifact with the folder of this machine in which it lies, empty if it lies in none.
func (e *environment) eachArtifact(stage *tasks.Stage, f func(a tasks.Artifact, below, rel string) error) error {
	space, err := e.space(stage.Agent.Network, "")
	if err != nil {
		return err
	}
	for _, a := range append([]tasks.Artifact{everyArtifacts}, stage.Artifacts...) {
		below, rel := workspace.BindOf(space.Binds, e.absolute(a.Source))
		if err := f(a, below, rel); err != nil {
			return err
		}
	}
	return nil
}

// absolute is an inside path, which may be relative to the working directory.
func (e *environment) absolute(inside string) string {
	if path.IsAbs(inside) {
		return inside
	}
	return path.Join(e.workdir(), inside)
}

// separate is an environment of the verifier's own: the task's files as they were, and the artifacts where they lay.
func (e *environment) separate(stage *tasks.Stage) (*environment, error) {
	own := *e
	own.root = filepath.Join(e.root, "separate")
	if err := os.RemoveAll(own.root); err != nil {
		return nil, err
	}
	if err := own.populate(); err != nil {
		return nil, err
	}
	// In between they lie where nobody has left links.
	between := filepath.Join(own.root, "artifacts")
	err := e.eachArtifact(stage, func(a tasks.Artifact, below, rel string) error {
		if below == "" {
			return nil
		}
		if err := os.RemoveAll(between); err != nil {
			return err
		}
		if err := workspace.NewCopyOut(a.Exclude, nil).Copy(below, rel, between); err != nil { // what it notes was noted when they were kept
			return err
		}
		if _, err := os.Lstat(between); err != nil {
			return nil //nolint:nilerr // there is no such artifact
		}
		to, at := own.place(e.absolute(a.Source))
		if err := workspace.CopyIn(between, to, at); !workspace.IsBadName(err) {
			return err
		}
		return nil // its place is taken by another artifact, and the tests will miss it
	})
	return &own, err
}

// filter is the redaction of the run, nil if there is none.
func (w *worker) filter() func(io.Writer) io.WriteCloser {
	if w.plan.redact == nil {
		return nil
	}
	return w.plan.redact.Writer
}
