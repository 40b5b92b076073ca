package rollout

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/sandbox"
	"github.com/evalrun/evalrun/internal/workspace"
	"github.com/evalrun/evalrun/tasks"
)

// runStage runs the agent for one stage.
func (s *stageRunner) runStage(ctx context.Context, stage *tasks.Stage) (agent.Outcome, error) {
	seg, spec, h := s.segment, s.spec, s.held
	begins := s.history == nil && seg.GoesOnFrom == ""
	if begins && stage.Workdir != "" {
		if err := spec.copyIn(stage.Workdir, spec.folders.Workdir); err != nil {
			return agent.Outcome{}, err
		}
	}
	sb, err := s.agentSandbox(stage, begins)
	if err != nil {
		return faultOrError(err)
	}
	if sb.Sockets, err = socketFolder(h.marker()); err != nil {
		return agent.Outcome{}, err
	}
	defer func() { _ = os.RemoveAll(sb.Sockets) }() // it has only sockets
	seg.Sandbox, seg.History = sb, s.history
	if len(s.info.Usage) > 0 { // this is the usage of the steps before
		budget := *seg.Budget
		budget.Spent = slices.Concat(budget.Spent, s.info.Usage)
		seg.Budget = &budget
	}
	seg.Prompt = stage.Instruction
	if p := stage.Agent.PromptPrefix; p != "" {
		seg.Prompt = p + "\n\n" + seg.Prompt
	}
	if begins {
		seg.Resume, seg.Deliveries = nil, nil
	}
	seg.Servers, seg.Hosted = agentServers(spec.servers, &sb.Config)
	seg.Gateway = h.behindGateway(spec.servers)
	if limit := stage.Agent.TimeoutSec.Duration(); limit > 0 {
		left := limit
		if stage.Name == "" { // the working time of a step is not recorded
			left = max(limit-h.claim.Clocks.Working, time.Millisecond)
		}
		seg.LimitTo(left, limit, "agent.timeout_sec")
	}
	if stage.Name != "" {
		seg.Dir = filepath.Join(seg.Dir, stepFolder(stage))
		seg.Ended = nil // another step may follow
		if err := os.MkdirAll(seg.Dir, 0o700); err != nil {
			return agent.Outcome{}, err
		}
	}
	needs := h.entry.Needs()
	if needs.Solution {
		if err := s.addSolution(stage, sb, &seg); err != nil {
			return faultOrError(err)
		}
		// If a crash leaves the solution, no later sandbox shows it.
		defer func() { _ = workspace.Remove(spec.folders.Dir(workspace.FolderSolution)) }()
	}
	for _, name := range h.run.Plan.Env {
		if value, ok := h.host.Resolve(name); ok && needs.Env {
			seg.Env = append(seg.Env, name+"="+value)
		}
	}
	way, err := spec.openReach(ctx, h, stage.Agent.Network, &sb.Config, sb.Sockets)
	if err != nil {
		return agent.Outcome{}, err
	}
	sb.Env = append(sb.Env, way.environ()...)
	out, err := s.agent.Run(ctx, seg)
	if err = errors.Join(err, way.Close()); err == nil {
		s.info.Refused = s.info.Refused.Plus(way.connections())
		err = way.keep(h, seg.Dir, &out)
	}
	return out, err
}

// agentSandbox returns the sandbox in which the agent of a stage runs. begins says that the stage
// begins and is not resumed.
func (s *stageRunner) agentSandbox(stage *tasks.Stage, begins bool) (*agent.Sandbox, error) {
	spec := s.spec
	cfg, err := spec.config(stage.Agent.Network, stage.Agent.User)
	if err != nil {
		return nil, err
	}
	home, workdir := spec.folders.Home(), spec.folders.Workdir
	for i := range cfg.Binds {
		if cfg.Binds[i].Inside == home {
			cfg.Binds[i].Writable = true
		}
	}
	p := &agent.Sandbox{Config: cfg, Home: cfg.Path(home), Cwd: cfg.Path(workdir), Executable: s.held.host.Executable,
		Env: spec.environ(&cfg)}
	if spec.image != nil {
		p.Arch, p.Has = runtime.GOARCH, spec.has
	}
	if spec.remote != nil {
		p.Arch = spec.remote.Arch()
	}
	switch {
	case spec.image == nil:
	case s.held.entry.Needs().Home:
		p.Config.Binds = append(p.Config.Binds,
			sandbox.Bind{Host: spec.folders.Dir(workspace.FolderHome), Inside: home, Writable: true})
		p.Config.Own = []string{home}
	default:
		p.Home = "" // the agent has the home of its user
	}
	if p.Setup, err = spec.setup(&cfg, stage, begins); err != nil || !begins {
		return p, err
	}
	// The skills are copied after the task's own commands, which may make them.
	if skills := spec.copySkills(s.held.entry, &p.Config); skills != nil {
		if p.Setup == nil {
			p.Setup = &sandbox.Setup{}
		}
		p.Setup.Commands = append(p.Setup.Commands, *skills)
	}
	return p, nil
}

// addSolution gives the oracle the task's solution.
func (s *stageRunner) addSolution(stage *tasks.Stage, sb *agent.Sandbox, seg *agent.Segment) error {
	if stage.Solution == "" {
		return nil
	}
	// The solution then lies among the other files.
	if s.spec.folders.Workdir == workspace.InsideSolution && s.spec.image == nil {
		if err := workspace.CopyIn(stage.Solution, s.spec.folders.Dir(workspace.FolderWorkspace), ""); err != nil {
			return err
		}
	} else {
		dir := s.spec.folders.Dir(workspace.FolderSolution)
		if err := errors.Join(workspace.Remove(dir), workspace.CopyIn(stage.Solution, dir, "")); err != nil {
			return err
		}
		sb.Config.Binds = append(sb.Config.Binds, sandbox.Bind{Host: dir, Inside: workspace.InsideSolution})
	}
	env, err := tasks.ExpandEnv("solution.env", s.spec.task.Config.Solution.Env, s.spec.lookup)
	if err != nil {
		return setupFault(err)
	}
	sb.Env = s.spec.environ(&sb.Config)
	seg.Solution = &agent.Script{Path: sb.Config.Path(workspace.InsideSolution + "/solve.sh"), Env: variables(env)}
	limit := s.spec.task.Config.Solution.TimeoutSec.Duration()
	seg.LimitTo(limit, limit, "solution.timeout_sec")
	return nil
}

// socketFolder makes the folder for the sockets of the rollout with a marker. It replaces one that
// a killed process has left. It is not in the store, since the paths of sockets must be short.
func socketFolder(marker string) (string, error) {
	sum := sha256.Sum256([]byte(marker))
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

// promptOf makes a prompt from an evaluation's input: its member prompt or instruction, its only
// text, or all of it.
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

// copySkills returns the command that copies the skills of a task, which are in a folder of its
// environment, for the agent; nil if the task has none.
func (s *sandboxSpec) copySkills(entry agent.Entry, cfg *sandbox.Config) *sandbox.SetupCommand {
	folder := entry.Skills()
	if s.task == nil || s.task.Config.Environment.SkillsDir == "" || folder == "" {
		return nil
	}
	home := cfg.Path(s.folders.Home())
	const script = `[ ! -d "$1" ] || { mkdir -p "$2" && cp -R "$1/." "$2/"; }`
	return &sandbox.SetupCommand{Args: []string{"/bin/sh", "-c", script, "sh",
		cfg.Path(s.task.Config.Environment.SkillsDir), home + "/" + folder}, Dir: cfg.Path(s.folders.Workdir)}
}
