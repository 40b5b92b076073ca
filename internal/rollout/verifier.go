package rollout

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/record"
	"github.com/evalrun/evalrun/internal/sandbox"
	"github.com/evalrun/evalrun/internal/workspace"
	"github.com/evalrun/evalrun/tasks"
)

// verifier runs the tests of a task, or of one of its steps, on the files that the agent has left.
// No process of the agent is left by then.
type verifier struct {
	held *held
	spec *sandboxSpec
}

// defaultVerifierTimeout applies if a step of a task sets no timeout.
const defaultVerifierTimeout = 10 * time.Minute

// runStep runs the verifier of a step. A missing reward is also recorded as a result.
func (v *verifier) runStep(ctx context.Context, stage *tasks.Stage) (record.StepResult, error) {
	out := record.StepResult{Name: stage.Name}
	reward, notes, err := v.run(ctx, stage)
	out.Notes = notes
	var f *fault.Fault
	switch {
	case errors.As(err, &f) && f.Category == fault.Verifier:
		out.Error = f.Message
	case err != nil:
		return out, err
	default:
		out.Reward, out.RewardName, out.Metrics = &reward.Value, reward.Name, reward.Metrics
		if reward.Suspicious != "" {
			out.Notes = append(out.Notes, "suspicious 0: "+reward.Suspicious)
		}
	}
	return out, nil
}

// run keeps the agent's artifacts, runs the task's tests and reads their reward. The notes say what
// could not be kept; a fault's message has them too.
func (v *verifier) run(ctx context.Context, stage *tasks.Stage) (reward tasks.Reward, notes []string, err error) {
	spec := v.spec
	defer func() {
		var f *fault.Fault
		if errors.As(err, &f) && len(notes) > 0 {
			f.Message += "; not kept: " + strings.Join(notes, "; ")
		} else if len(notes) > 0 {
			v.held.host.Logger.Warn("not everything that the agent left was kept",
				"rollout", v.held.claim.RolloutID, "notes", strings.Join(notes, "; "))
		}
	}()
	into := filepath.Join(v.held.dir(), stepFolder(stage))
	// Remove the files of an earlier attempt.
	if err := errors.Join(os.RemoveAll(filepath.Join(into, "artifacts")), os.RemoveAll(filepath.Join(into, "verifier")),
		workspace.TakeBack(spec.folders.Root, spec.folders.Kept())); err != nil {
		return reward, nil, err
	}
	if err := v.collect(ctx, stage); err != nil {
		return reward, nil, err
	}
	if notes, err = v.keepArtifacts(stage, filepath.Join(into, "artifacts")); err != nil {
		return reward, nil, err
	}
	if stage.Verifier.Separate() {
		if spec, err = v.separate(ctx, stage); err != nil {
			return reward, notes, err
		}
		defer spec.release()
	}
	defer spec.clearVerifier() // the agent of a later step must see neither the tests nor their output
	command, err := v.command(spec, stage)
	if err != nil {
		return reward, notes, err
	}
	timeout := stage.Verifier.TimeoutSec.Duration()
	if timeout <= 0 {
		timeout = defaultVerifierTimeout
	}
	running, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	log := filepath.Join(into, "verifier", record.VerifierLog)
	way, done, err := v.openReach(ctx, spec, stage.Verifier.Reaches(), &command)
	if err != nil {
		return reward, notes, err
	}
	exit, err := v.runLogged(running, command, log)
	err = errors.Join(err, done())
	notes = append(notes, way.notes()...)
	results := filepath.Join(spec.folders.Dir(workspace.FolderLogs), "verifier")
	var unstarted *sandbox.SetupError
	switch {
	case ctx.Err() != nil:
		return reward, notes, ctx.Err()
	case err != nil:
		return reward, notes, fault.New(fault.Verifier, "the verifier could not be run: "+err.Error())
	case errors.As(exit.Ended, &unstarted): // the verifier is not at fault if it was not started
		return reward, notes, fault.New(fault.Setup, unstarted.Error())
	case running.Err() != nil:
		err = fmt.Errorf("the verifier took longer than %v and was ended (verifier.timeout_sec)", timeout)
	case exit.MemoryNote() != "" && isKilled(exit.State): // what it had written by then is not its last word
		err = errors.New("the verifier was ended before its end")
	case exit.MemoryNote() != "":
		notes = append(notes, strings.TrimPrefix(exit.MemoryNote(), "; "))
	}
	workspace.Reclaim(results)
	logs := workspace.NewCopyOut(nil, v.held.run.filter())
	// The folder itself may have become a link.
	if err := logs.Copy(spec.folders.Dir(workspace.FolderLogs), "verifier", filepath.Join(into, "verifier")); err != nil {
		return reward, notes, err
	}
	notes = append(notes, logs.Notes...)
	if err == nil {
		reward, err = tasks.ReadReward(results, stage.Verifier.Range())
	}
	if err != nil {
		if exit.State != nil && !exit.State.Success() {
			err = fmt.Errorf("%w; it ended with %s%s", err, exit.State, exit.MemoryNote())
		}
		return tasks.Reward{}, notes, fault.Newf(fault.Verifier, "%v; what it printed is in %s%s", err,
			filepath.Base(filepath.Dir(log))+"/"+record.VerifierLog, way.because())
	}
	if reward.Value == 0 {
		printed, err := os.ReadFile(log)
		if err != nil {
			return reward, notes, err
		}
		reward.Suspicious = tasks.Suspicious(printed)
	}
	return reward, notes, nil
}

// isKilled reports whether a process was ended by SIGKILL: itself, or as what its sandbox says of it.
func isKilled(state *os.ProcessState) bool {
	const killed = 128 + int(syscall.SIGKILL)
	if state == nil {
		return false
	}
	status, _ := state.Sys().(syscall.WaitStatus)
	return state.ExitCode() == killed || status.Signaled() && status.Signal() == syscall.SIGKILL
}

// command returns the task's test script in its sandbox, with a fresh home, the tests in their
// place and an empty log folder.
func (v *verifier) command(spec *sandboxSpec, stage *tasks.Stage) (sandbox.Command, error) {
	home, results := spec.folders.Short(workspace.FolderVerifier),
		filepath.Join(spec.folders.Dir(workspace.FolderLogs), "verifier")
	for _, dir := range []string{home, results, spec.folders.Dir(workspace.FolderTests)} {
		if err := errors.Join(workspace.Remove(dir), os.MkdirAll(dir, 0o700)); err != nil {
			return sandbox.Command{}, err
		}
		if spec.image != nil { // every user of the image may read the tests
			if err := os.Chmod(dir, 0o755); err != nil {
				return sandbox.Command{}, err
			}
		}
	}
	for _, dir := range stage.Tests {
		if err := workspace.CopyIn(dir, spec.folders.Dir(workspace.FolderTests), ""); err != nil {
			return sandbox.Command{}, err
		}
	}
	cfg, err := spec.config(stage.Verifier.Reaches(), stage.Verifier.User)
	if err != nil {
		return sandbox.Command{}, err
	}
	cfg.Binds = append(cfg.Binds, sandbox.Bind{Host: spec.folders.Dir(workspace.FolderTests),
		Inside: workspace.InsideTests, Writable: !cfg.IsRemote()}) // of a copy nothing comes back
	if spec.image == nil {
		cfg.Binds = append(cfg.Binds, sandbox.Bind{Host: home, Inside: "/home/verifier", Writable: true})
	}
	own, err := tasks.ExpandEnv("verifier.env", stage.Verifier.Env, spec.lookup)
	if err != nil {
		return sandbox.Command{}, fault.New(fault.Verifier, err.Error())
	}
	script := cfg.Path(workspace.InsideTests + "/test.sh")
	env := spec.programEnviron(&cfg, cfg.Path("/home/verifier"))
	var setup *sandbox.Setup
	if services := spec.entrypoint(); services != nil {
		setup = &sandbox.Setup{Services: services}
	}
	return sandbox.Command{
		Marker: v.held.marker(), Path: "/bin/bash", Args: []string{"bash", script}, Dir: cfg.Path(spec.folders.Workdir),
		Env:    append(env, variables(own)...),
		Config: &cfg, Setup: setup, Executable: v.held.host.Executable,
	}, nil
}

// collect runs the task's own commands that gather what the tests need, where the agent ran.
func (v *verifier) collect(ctx context.Context, stage *tasks.Stage) error {
	for i, c := range stage.Verifier.Collect {
		cfg, err := v.spec.config(stage.Agent.Network, c.User)
		if err != nil {
			return err
		}
		running, cancel := context.WithTimeout(ctx, c.TimeoutSec.Duration())
		command := sandbox.Command{
			Marker: v.held.marker(), Path: "/bin/sh", Args: []string{"sh", "-c", c.Command},
			Dir: cfg.Path(v.spec.folders.Workdir),
			Env: v.spec.programEnviron(&cfg, "/tmp"), Config: &cfg, Executable: v.held.host.Executable,
		}
		log := filepath.Join(v.held.dir(), stepFolder(stage), fmt.Sprintf("collect-%d.log", i+1))
		_, done, err := v.openReach(ctx, v.spec, stage.Agent.Network, &command)
		if err != nil {
			cancel()
			return err
		}
		exit, err := v.runLogged(running, command, log)
		err = errors.Join(err, done())
		timedOut := running.Err() != nil
		cancel()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return fault.Newf(fault.Verifier, "verifier.collect[%d]: %v", i, err)
		case timedOut, !exit.State.Success():
			v.held.host.Logger.Warn("a collecting command failed", "rollout", v.held.claim.RolloutID, "command", i, "log", log)
		}
	}
	return nil
}

// openReach opens the way of a command to the hosts that it may reach, until done is called.
func (v *verifier) openReach(ctx context.Context, spec *sandboxSpec, phase tasks.Network,
	c *sandbox.Command) (way *reach, done func() error, err error) {
	dir, err := socketFolder(v.held.marker())
	if err != nil {
		return nil, nil, err
	}
	if way, err = spec.openReach(ctx, v.held, phase, c.Config, dir); err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(dir))
	}
	c.Env = append(c.Env, way.environ()...)
	return way, func() error { return errors.Join(way.Close(), os.RemoveAll(dir)) }, nil
}

// clearVerifier removes the files that only the verifier may see. Files that cannot be removed now
// are removed before the next verifier runs.
func (s *sandboxSpec) clearVerifier() {
	for _, dir := range []string{workspace.FolderTests, workspace.FolderVerifier, workspace.FolderLogs + "/verifier"} {
		_ = workspace.Remove(s.folders.Dir(dir))
	}
}
