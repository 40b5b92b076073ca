package runner

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/agent/oracle"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/workspace"
)

// OracleCheck is the result of [CheckTasks] for one task with one agent.
type OracleCheck struct {
	Task  string
	Agent string
	// Reward is the verifier's reward, and Want the expected one.
	Reward *float64
	Want   float64
	// NotRunnable says why the task cannot be run here, Fault why it failed; both may be empty.
	NotRunnable string
	Fault       string
	// Suspicious is a line of the tests' output, if their 0 may be for want of their tools.
	Suspicious string
}

// OK reports whether the reward is the expected one.
func (c OracleCheck) OK() bool {
	return c.NotRunnable == "" && c.Fault == "" && c.Reward != nil && *c.Reward == c.Want
}

// RewardText is the reward as people read it.
func (c OracleCheck) RewardText() string { return printScore(c.Reward) }

// ErrInterrupted is the error of work that ended before there was a result.
var ErrInterrupted = errors.New("interrupted")

// CheckTasks runs task directories with their own solutions, which must get the reward 1, and with
// an agent that does nothing, which must get 0. It uses a store of its own that it throws away.
func CheckTasks(ctx context.Context, dirs []string, sandbox SandboxOptions, store OpenOptions,
	o Options) (checks []OracleCheck, err error) {
	set, err := Load(dirs, LoadOptions{Agents: []string{oracle.Name, oracle.NopName}, Sandbox: sandbox,
		Variables: o.Variables, AllowUnset: true})
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "evalrun-oracle-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s, err := Open(dir, store)
	if err != nil {
		return nil, err
	}
	outside := filepath.Join(workspace.StateDir(), s.ID()) // the folder of rollouts without isolation
	defer func() { err = errors.Join(err, os.RemoveAll(outside)) }()
	defer func() { err = errors.Join(err, s.Close()) }()
	run, err := s.Create(ctx, set, CreateOptions{})
	if err != nil {
		return nil, err
	}
	p, err := readPlanned(ctx, s.st, run.RunID, o.Variables)
	if err != nil {
		return nil, err
	}
	interrupted, err := work{s: s, o: o, red: p.red}.until(ctx, p.runID, RunOptions{Wait: true}, false)
	if err != nil {
		return nil, err
	}
	if interrupted {
		return nil, ErrInterrupted
	}
	return oracleChecks(ctx, s.st, run.RunID)
}

// suspicious returns the suspicious line of a verifier's result, empty if there is none.
func suspicious(results []store.Result) (string, error) {
	for _, r := range results {
		var found []eval.Result
		if r.EvaluatorID != eval.Verifier.ID {
			continue
		}
		if err := json.Unmarshal(r.Data, &found); err != nil {
			return "", err
		}
		for _, one := range found {
			var details eval.VerifierDetails
			if one.Details != nil && json.Unmarshal(one.Details, &details) == nil && details.Suspicious != "" {
				return details.Suspicious, nil
			}
		}
	}
	return "", nil
}

func oracleChecks(ctx context.Context, st store.Reader, runID string) (checks []OracleCheck, err error) {
	err = st.Snapshot(ctx, runID, func(v store.View) error {
		checks = nil
		return v.Rollouts(func(r store.RolloutView) error {
			c := OracleCheck{Task: r.EvaluationName, Agent: r.Agent, Reward: r.Score}
			if r.Agent == oracle.Name {
				c.Want = 1
			}
			switch {
			case r.Fault != nil && r.Fault.Category == fault.NotRunnable:
				c.NotRunnable = r.Fault.Message
			case r.Fault != nil:
				c.Fault = r.Fault.Error()
			}
			if c.Suspicious, err = suspicious(r.Results); err != nil {
				return err
			}
			checks = append(checks, c)
			return nil
		})
	})
	return checks, err
}
