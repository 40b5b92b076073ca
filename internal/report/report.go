// Package report says how a run is going and what came of it: the results document, its conversions (JUnit, Markdown, CSV,
// UiPath's own format, a table for people) and the progress that is shown while a command runs.
//
// A [Report] is what all of them are made from. It comes from a store ([FromStore], [FromView]) or from a results document
// ([Open]), and hands out rollouts one by one, so that memory does not grow with their number. [SaveResults] keeps a results
// document up to date; [Execution] folds a run's events, and [Live] and [Log] show it. The package changes no store.
package report

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/modelproxy"
	"github.com/evalrun/evalrun/internal/plans"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/store"
)

// schemaVersion is the version of the results document.
const schemaVersion = "2.0"

// Report is a run at one moment.
type Report struct {
	Head
	// Dataset holds set-level results under <evaluator name>::<type>.
	Dataset map[string]eval.DatasetResult
	// Pass is the score from which on a rollout passes. A results document of version 1 does not tell; then it is 1.
	Pass float64

	each func(parts, func(*Rollout) error) error
}

// parts says what of a rollout is wanted.
type parts struct{ spans bool }

// Rollouts calls f for every rollout in the order of the plan. Its trace is left out.
func (r *Report) Rollouts(f func(*Rollout) error) error { return r.each(parts{}, f) }

// Head is what a results document says before its rollouts.
type Head struct {
	SchemaVersion string `json:"schemaVersion"`
	RunID         string `json:"runId"`
	StoreID       string `json:"storeId"`
	// StorePath is the store's folder relative to the document's, slash-separated.
	StorePath string `json:"storePath"`
	// Revision is that of the run in its store.
	Revision int64 `json:"revision"`
	// Final says that no rollout can change any more.
	Final             bool   `json:"final"`
	EvaluationSetID   string `json:"evaluationSetId"`
	EvaluationSetName string `json:"evaluationSetName"`
	// EvaluationSetPath is the eval set's file relative to the document's folder, slash-separated; empty for task directories alone.
	EvaluationSetPath   string `json:"evaluationSetPath,omitempty"`
	EvaluationSetDigest string `json:"evaluationSetDigest,omitempty"`
	// EvalIDs and Filter are what the eval set was narrowed with, RetryOf the run whose faulted rollouts were run again.
	EvalIDs []string `json:"evalIds,omitempty"`
	Filter  string   `json:"filter,omitempty"`
	RetryOf string   `json:"retryOf,omitempty"`
	// PlanDigest is the same for runs of the same evaluations, evaluators, agents, jobs and thresholds.
	PlanDigest string `json:"planDigest,omitempty"`
	// GitCommit was checked out where the eval set is, and Version is the evalrun that planned the run.
	GitCommit  string      `json:"gitCommit,omitempty"`
	Version    string      `json:"evalrunVersion,omitempty"`
	StartedAt  *time.Time  `json:"startedAt,omitempty"`
	FinishedAt *time.Time  `json:"finishedAt,omitempty"`
	Agents     []AgentHead `json:"agents,omitempty"`
	Status     Status      `json:"status"`
	Summary    Summary     `json:"summary"`
	// Statistics may be nil in a document of version 1.
	Statistics *eval.Summary `json:"statistics,omitempty"`
}

// AgentHead says what an agent is.
type AgentHead struct {
	Name    string   `json:"name"`
	Type    string   `json:"type"`
	Command []string `json:"command,omitempty"`
	// Model is the model's name, where evalrun is told it.
	Model string `json:"model,omitempty"`
}

// Summary counts rollouts, and says what the score is. Of several agents each has its own.
type Summary struct {
	Total     int `json:"total"`
	Completed int `json:"completed"`
	Suspended int `json:"suspended"`
	Faulted   int `json:"faulted"`
	// Score counts the agent's own faults as 0, as ScoreOf says; ScoreCompleted leaves faulted rollouts out.
	Score          *float64     `json:"score"`
	ScoreOf        string       `json:"scoreOf,omitempty"`
	ScoreCompleted *float64     `json:"scoreCompleted"`
	Agents         []AgentScore `json:"agents,omitempty"`
}

// scoreWithFaulted is what Summary.ScoreOf says.
const scoreWithFaulted = "withFaulted"

// AgentScore is the score of one agent of several.
type AgentScore struct {
	Agent          string   `json:"agent"`
	Score          *float64 `json:"score"`
	ScoreCompleted *float64 `json:"scoreCompleted"`
}

// Status is how a run stands.
type Status string

// The statuses of a run; the first that holds is its status.
const (
	Running    Status = "running"
	Suspended  Status = "suspended"
	Faulted    Status = "faulted"
	Cancelled  Status = "cancelled"
	Successful Status = "successful"
)

// StatusOf is the status of a run with these rollouts.
func StatusOf(c store.Counts) Status {
	switch {
	case c.Pending+c.Running+c.Evaluating > 0:
		return Running
	case c.Suspended > 0:
		return Suspended
	case c.Faulted > 0:
		return Faulted
	case c.Cancelled > 0:
		return Cancelled
	}
	return Successful
}

// Rollout is one entry of evaluationSetResults.
type Rollout struct {
	EvaluationID   string       `json:"evaluationId"`
	EvaluationName string       `json:"evaluationName"`
	RolloutID      string       `json:"rolloutId"`
	Agent          string       `json:"agent"`
	Epoch          int          `json:"epoch"`
	Status         store.State  `json:"status"`
	Score          *float64     `json:"score"`
	Error          *fault.Fault `json:"error"`
	ResumedBy      []Resumption `json:"resumedBy"`
	// MCPServers has a verdict for each server that was declared for the agent.
	MCPServers []agent.ServerVerdict `json:"mcpServers"`
	// Isolation of the agent's processes: "none" for a function agent.
	Isolation string `json:"isolation"`
	// Environment of a task: "host" for this machine's own system.
	Environment          string          `json:"environment,omitempty"`
	Segments             int             `json:"segments"`
	EvaluationRunResults []Evaluated     `json:"evaluationRunResults"`
	AgentExecutionOutput *AgentExecution `json:"agentExecutionOutput"`
	Clocks               Clocks          `json:"clocks"`
	// AgentVersion is the version that the agent says it has.
	AgentVersion string `json:"agentVersion,omitempty"`
	// Limit is the limit that ended the agent, if what it had done by then was scored.
	Limit *fault.Fault `json:"limit,omitempty"`
	// Usage is what the agent has used.
	Usage *Usage `json:"usage,omitempty"`
	// Steps are those of a task of several steps that have ended.
	Steps []agent.StepResult `json:"steps,omitempty"`
	// Inputs, ExpectedOutput, Criteria (by evaluator) and Tags are the evaluation's.
	Inputs         json.RawMessage            `json:"inputs,omitempty"`
	ExpectedOutput json.RawMessage            `json:"expectedOutput,omitempty"`
	Criteria       map[string]json.RawMessage `json:"criteria,omitzero"`
	Tags           []string                   `json:"tags,omitempty"`
	// StartedAt is when the first segment began, FinishedAt when the rollout ended.
	StartedAt  *time.Time `json:"startedAt,omitempty"`
	FinishedAt *time.Time `json:"finishedAt,omitempty"`
	// Logs are the files that the segments have left, relative to the store's folder, slash-separated.
	Logs []string `json:"logs,omitempty"`
}

// Usage is what an agent has used in all segments that counted.
type Usage struct {
	ToolCalls int `json:"toolCalls"`
	// Model is what evalrun's model proxy counted; nil if the agent did not go through it.
	Model *modelproxy.Usage `json:"model"`
	// Agent is what the agent itself reported last.
	Agent json.RawMessage `json:"agent"`
}

// Resumption is a segment that a rollout was resumed with.
type Resumption struct {
	Segment    int      `json:"segment"`
	TriggerIDs []string `json:"triggerIds"`
	// At is when its first attempt began; nil if that attempt has left nothing behind.
	At *time.Time `json:"at"`
	// Session says how an agent's session was gone on with: resume, load or replay. Note says why not in a better way.
	Session agent.ResumeBy `json:"session,omitempty"`
	Note    string         `json:"note,omitempty"`
}

// Evaluated is what one evaluator said of a rollout.
type Evaluated struct {
	EvaluatorName string           `json:"evaluatorName"`
	EvaluatorID   string           `json:"evaluatorId"`
	Result        EvaluationResult `json:"result"`
	IsLineResult  bool             `json:"isLineResult"`
}

// EvaluationResult holds a score, or in NotRun or Error why there is none.
type EvaluationResult struct {
	Score   *float64        `json:"score"`
	Details json.RawMessage `json:"details,omitempty"`
	// Scale is the score that means perfect where that is not 1: 100 of UiPath's legacy evaluators.
	Scale float64 `json:"scale,omitempty"`
	// EvaluationTime is in seconds.
	EvaluationTime float64 `json:"evaluationTime"`
	// Error says how the evaluator failed, which gives no score, or why the agent's output does not fit it, which gives the score 0.
	Error  string `json:"error,omitempty"`
	NotRun string `json:"notRun,omitempty"`
}

// AgentExecution is what the agent did; a rollout that has not come to a stop yet has none.
type AgentExecution struct {
	// ExecutionTime is the working time of all segments in seconds.
	ExecutionTime float64         `json:"execution_time"`
	Result        ExecutionResult `json:"result"`
	Trace         Trace           `json:"trace"`
}

// ExecutionResult is UiPath's runtime result: Status is successful, faulted or suspended.
type ExecutionResult struct {
	Status   string          `json:"status"`
	Output   json.RawMessage `json:"output"`
	Error    *fault.Fault    `json:"error"`
	Trigger  *Trigger        `json:"trigger"`
	Triggers []Trigger       `json:"triggers"`
}

// Trace holds the spans of all segments in order, as the agent wrote them.
type Trace struct {
	Spans []json.RawMessage `json:"spans"`
}

// Trigger is something that a suspended rollout waits for, or that has arrived for it and has not been taken.
type Trigger struct {
	TriggerID   string          `json:"trigger_id"`
	InterruptID string          `json:"interrupt_id"`
	Type        string          `json:"trigger_type"`
	Name        string          `json:"trigger_name"`
	ItemKey     string          `json:"item_key"`
	FolderPath  nullable        `json:"folder_path"`
	Payload     json.RawMessage `json:"payload"`
	FolderKey   string          `json:"folder_key,omitempty"`
	// ResumeTime is when a timer fires, Deadline when the suspension times out.
	ResumeTime *time.Time `json:"resume_time,omitempty"`
	Deadline   *time.Time `json:"deadline,omitempty"`
	// ExpiresAt is when the source forgets the result.
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
}

// Clocks say where a rollout's time went.
type Clocks struct {
	WallMs       int64 `json:"wallMs"`
	WorkingMs    int64 `json:"workingMs"`
	WaitingMs    int64 `json:"waitingMs"`
	QueuedMs     int64 `json:"queuedMs"`
	EvaluatingMs int64 `json:"evaluatingMs"`
}

// nullable is a string that is null if it is empty.
type nullable string

// MarshalJSON implements json.Marshaler.
func (n nullable) MarshalJSON() ([]byte, error) {
	if n == "" {
		return []byte("null"), nil
	}
	return json.Marshal(string(n))
}

// Command gives the command that would get a suspended rollout on.
type Command func(*Rollout) string

// FromStore calls f with the report of a run. It holds only during the call.
func FromStore(ctx context.Context, st store.Store, runID string, red *redact.Redactor, f func(*Report) error) error {
	return fromStore(ctx, st, runID, red, ".", func(_ store.View, r *Report) error { return f(r) })
}

func fromStore(ctx context.Context, st store.Store, runID string, red *redact.Redactor, dir string, f func(store.View, *Report) error) error {
	o := Options{StoreID: st.ID(), StoreDir: st.Dir(), Redact: red}
	stored, err := st.Plan(ctx, runID)
	if err != nil {
		return err
	}
	plan, err := plans.Read(stored)
	if err != nil {
		return err
	}
	o.Plan = plan
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	if o.StorePath, err = filepath.Rel(dir, st.Dir()); err != nil {
		return fmt.Errorf("the place of the store relative to %s: %w", dir, err)
	}
	return st.Snapshot(ctx, runID, func(v store.View) error {
		r, err := FromView(v, o)
		if err != nil {
			return err
		}
		return f(v, r)
	})
}
