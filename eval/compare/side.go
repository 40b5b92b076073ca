// Package compare says how two runs of one eval set differ, and whether that is more than chance:
// pairs of evaluations, tests, lists of evaluations that became worse and better, gates.
//
// A caller makes a [Side] of each run and calls [Compare], or [SelfTest] with one side. The package
// knows evaluations and their outcomes. It must not know where runs are stored or how a comparison
// is printed. The mathematics is that of package stats.
package compare

import (
	"fmt"
	"slices"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/stats"
	"github.com/evalrun/evalrun/eval/summary"
	"github.com/evalrun/evalrun/internal/input"
)

// Side is a run, or one agent of it.
type Side struct {
	Source
	// Agent is the only agent to compare; empty for all.
	Agent  string
	Epochs int
	Reduce eval.Reducer
	Pass   float64
	// Interval is the method of the run's own intervals.
	Interval   stats.Method
	Evaluators []Evaluator
	// Judges are the judges of the evaluators that ask models.
	Judges []summary.JudgeSummary
	// Evaluations are the evaluations of the plan, in its order.
	Evaluations []Evaluation
	// About holds further facts of the run's plan, by their names: a commit, an agent's command.
	// Differences in it are only listed.
	About map[string]string
}

// Source says which run a side is.
type Source struct {
	RunID               string `json:"runId"`
	EvaluationSetName   string `json:"evaluationSetName"`
	EvaluationSetDigest string `json:"evaluationSetDigest,omitempty"`
	PlanDigest          string `json:"planDigest,omitempty"`
	// Agents are the agents that are compared.
	Agents []string `json:"agents"`
	// N is the number of evaluations and agents.
	N int `json:"n"`
	// Final says that nothing can change any more.
	Final bool `json:"final"`
}

// Evaluator is an evaluator of the plan. Its digest may be empty, in documents of earlier versions.
type Evaluator struct {
	ID, Name, Digest string
	// NotRun counts the rollouts that it was to score and for which it could not be run.
	NotRun int
}

// Evaluation is an evaluation with its outcome for one agent.
type Evaluation struct {
	Name string
	// Digest is the digest of inputs and criteria.
	Digest string
	// Task is the digest of its task, and Images are those of the images in which its rollouts ran.
	// They are empty where there are none, and where they are not known, as in documents of earlier
	// versions.
	Task   string
	Images []string
	// Faults are the categories of the faults of its rollouts.
	Faults []string
	// Rollouts are its epochs.
	Rollouts []Rollout
	summary.Outcome
}

// Rollout is one epoch of an evaluation.
type Rollout struct {
	RolloutID string `json:"rolloutId"`
	Epoch     int    `json:"epoch"`
	// Status is passed, failed or unscored for a completed rollout, else its state.
	Status string   `json:"status"`
	Score  *float64 `json:"score"`
}

// key tells evaluations apart: by id, and by agent where there are several.
type key struct{ evaluation, agent string }

// index finds the evaluations of a side. If a side has one agent, the agent is no part of the key:
// it may have another name on the other side.
func (s *Side) index() (keys []key, byKey map[key]*Evaluation) {
	byKey = map[key]*Evaluation{}
	for i := range s.Evaluations {
		e := &s.Evaluations[i]
		k := key{evaluation: e.EvaluationID}
		if len(s.Agents) > 1 {
			k.agent = e.Agent
		}
		keys, byKey[k] = append(keys, k), e
	}
	return keys, byKey
}

// only keeps the evaluations of one agent.
func (s *Side) only() error {
	if s.Agent == "" {
		return nil
	}
	if !slices.Contains(s.Agents, s.Agent) {
		return fmt.Errorf("run %s has no agent %q; it has %s", s.RunID, s.Agent, input.List(s.Agents))
	}
	s.Evaluations = slices.DeleteFunc(slices.Clone(s.Evaluations), func(e Evaluation) bool { return e.Agent != s.Agent })
	s.Agents = []string{s.Agent}
	s.N = len(s.Evaluations)
	return nil
}

func (s *Side) evaluator(id string) *Evaluator {
	for i := range s.Evaluators {
		if s.Evaluators[i].ID == id {
			return &s.Evaluators[i]
		}
	}
	return nil
}
