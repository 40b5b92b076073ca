package schemas

import (
	"encoding/json"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/summary"
)

// Version is the version of the results documents that this package writes. A document with the
// same major version can be read.
const Version = "2.0"

// Results is a results document.
type Results struct {
	Head
	// EvaluationSetResults has one entry a rollout, in the order of the plan.
	EvaluationSetResults []Rollout `json:"evaluationSetResults"`
	// DatasetEvaluatorResults holds set-level results under <evaluator name>::<type>.
	DatasetEvaluatorResults map[string]eval.DatasetResult `json:"datasetEvaluatorResults"`
}

// Head is the part of a results document that comes before its rollouts.
type Head struct {
	SchemaVersion string `json:"schemaVersion"`
	RunID         string `json:"runId"`
	StoreID       string `json:"storeId"`
	// StorePath is the store's folder relative to the document's, slash-separated.
	StorePath string `json:"storePath"`
	// Revision is the revision of the run in its store.
	Revision int64 `json:"revision"`
	// Final says that no rollout can change any more.
	Final             bool   `json:"final"`
	EvaluationSetID   string `json:"evaluationSetId"`
	EvaluationSetName string `json:"evaluationSetName"`
	// EvaluationSetPath is the eval set's file relative to the document's folder, slash-separated;
	// empty for task directories alone.
	EvaluationSetPath   string `json:"evaluationSetPath,omitempty"`
	EvaluationSetDigest string `json:"evaluationSetDigest,omitempty"`
	// Dataset is the file whose rows are evaluations, nil if there is none.
	Dataset *eval.Dataset `json:"dataset,omitempty"`
	// EvalIDs and Filter narrowed the eval set. RetryOf is the run whose faulted rollouts were run
	// again.
	EvalIDs []string `json:"evalIds,omitempty"`
	Filter  string   `json:"filter,omitempty"`
	RetryOf string   `json:"retryOf,omitempty"`
	// Selection says how much of the eval set the run has, if that is not all of it or was asked for.
	Selection *Selection `json:"selection,omitempty"`
	// Tags and Metadata are the eval set's.
	Tags     []string        `json:"tags,omitempty"`
	Metadata json.RawMessage `json:"metadata,omitempty"`
	// CommandLine is the command line that started the run, without the choice of agents and
	// evaluations and without outputs; empty if it was not started from a command line.
	CommandLine []string `json:"commandLine,omitempty"`
	// FailFast says that a failed rollout cancelled those that had not ended.
	FailFast bool `json:"failFast,omitempty"`
	// Isolation is that of the run's tasks, if evalrun has chosen another than the usual one, and
	// IsolationReason says why.
	Isolation       string `json:"isolation,omitempty"`
	IsolationReason string `json:"isolationReason,omitempty"`
	// TaskOverrides are the changes to the limits of tasks; nil if there are none.
	TaskOverrides *TaskOverrides `json:"taskOverrides,omitempty"`
	// PlanDigest is the same for runs of the same evaluations, evaluators, agents, jobs and
	// thresholds.
	PlanDigest string `json:"planDigest,omitempty"`
	// GitCommit is the commit that was checked out where the eval set is, EvalrunVersion the version
	// that planned the run.
	GitCommit string `json:"gitCommit,omitempty"`
	// GitDirty says whether files of the eval set's folder then differed from GitCommit, leaving aside
	// those that git does not know; nil if that is not known.
	GitDirty       *bool      `json:"gitDirty,omitempty"`
	EvalrunVersion string     `json:"evalrunVersion,omitempty"`
	StartedAt      *time.Time `json:"startedAt,omitempty"`
	FinishedAt     *time.Time `json:"finishedAt,omitempty"`
	Agents         []Agent    `json:"agents,omitempty"`
	Status         Status     `json:"status"`
	Summary        Summary    `json:"summary"`
	// Statistics may be nil in a document of version 1.
	Statistics *summary.Summary `json:"statistics,omitempty"`
	// Rescorings are the times that completed rollouts were scored again, in order. The run is
	// judged by the evaluators of the last one.
	Rescorings []Rescoring `json:"rescorings,omitempty"`
	// Played says which answers and jobs were played, nil if nothing was to be.
	Played *Played `json:"played,omitempty"`
	// CachedOutputs counts the rollouts whose agent was not run, because an earlier run has its output.
	CachedOutputs int `json:"cachedOutputs,omitempty"`
	// SimulatedUsers are the users who were played by models; nil if none were.
	SimulatedUsers *SimulatedUsers `json:"simulatedUsers,omitempty"`
}

// SimulatedUsers counts what users have said who were played by models.
type SimulatedUsers struct {
	Rollouts int `json:"rollouts"`
	Messages int `json:"messages"`
	// Usage is what they have used of models, apart from what agents have.
	Usage eval.Usage `json:"usage"`
}

// Played counts what has arrived without anybody: the answers of people, the results of jobs and of
// calls of tools that the eval set plays.
type Played struct {
	Answers int `json:"answers"`
	Jobs    int `json:"jobs"`
	// Calls counts the calls of tools that were played.
	Calls int `json:"calls,omitempty"`
	// Usage is what models have used that have written results of calls; nil if none has.
	Usage *eval.Usage `json:"usage,omitempty"`
	// Warnings name answers and mocks that have matched nothing in a run that is final, answers of
	// which two match one question, and calls that no mock has matched.
	Warnings []string `json:"warnings,omitempty"`
}

// Rescoring is one time that completed rollouts of a run were scored again.
type Rescoring struct {
	// Number counts the rescorings from 1.
	Number int `json:"number"`
	// EvaluatorsDigest is the same for the same evaluators and criteria.
	EvaluatorsDigest string `json:"evaluatorsDigest"`
	// File is the evaluator file or eval set from which they were read, relative to the document's
	// folder, slash-separated, and FileDigest its digest. They are empty if the evaluators are those
	// with which the run was planned, or which were in force.
	File       string `json:"file,omitempty"`
	FileDigest string `json:"fileDigest,omitempty"`
	// Only names the evaluators that were asked, if not all were. Failed says that only those that had
	// failed were asked.
	Only           []string  `json:"only,omitempty"`
	Failed         bool      `json:"failed,omitempty"`
	EvalrunVersion string    `json:"evalrunVersion,omitempty"`
	BegunAt        time.Time `json:"begunAt"`
	// EndedAt is missing as long as rollouts are due.
	EndedAt *time.Time `json:"endedAt,omitempty"`
	// Due counts the rollouts that are still to be scored, Scored those that were, and NotScored
	// those that were left as they are.
	Due       int `json:"due"`
	Scored    int `json:"scored"`
	NotScored int `json:"notScored"`
}

// Selection says which part of its eval set a run has, and how it was chosen.
type Selection struct {
	// Tags were asked for. FailedOf is the run of which only the failures were run again.
	Tags     []string `json:"tags,omitempty"`
	FailedOf string   `json:"failedOf,omitempty"`
	// Limit is how many evaluations were taken at most, from the start of the set. Sample is how many
	// were taken by chance, with Seed.
	Limit  int     `json:"limit,omitempty"`
	Sample int     `json:"sample,omitempty"`
	Seed   *uint64 `json:"seed,omitempty"`
	// Evaluations and Rollouts count what was planned, OfEvaluations and OfRollouts what the whole set
	// has.
	Evaluations   int `json:"evaluations"`
	OfEvaluations int `json:"ofEvaluations"`
	Rollouts      int `json:"rollouts"`
	OfRollouts    int `json:"ofRollouts"`
}

// Status is the status of a run.
type Status string

// The statuses of a run; the first that holds is its status.
const (
	Running    Status = "running"
	Suspended  Status = "suspended"
	Faulted    Status = "faulted"
	Cancelled  Status = "cancelled"
	Successful Status = "successful"
)

// Agent describes an agent.
type Agent struct {
	Name    string   `json:"name"`
	Type    string   `json:"type"`
	Command []string `json:"command,omitempty"`
	// Model is the model's name, where evalrun is told it.
	Model string `json:"model,omitempty"`
	// Option is the value of --agent that named it, empty if the eval set did.
	Option string `json:"option,omitempty"`
}

// Summary counts rollouts and holds the score. With several agents, each has its own score in
// Agents.
type Summary struct {
	Total     int `json:"total"`
	Completed int `json:"completed"`
	Suspended int `json:"suspended"`
	// Scoring counts the rollouts whose agent has finished and that wait for a score.
	Scoring int `json:"scoring,omitempty"`
	Faulted int `json:"faulted"`
	// Score counts the agent's own faults as 0, as ScoreOf says; ScoreCompleted leaves faulted
	// rollouts out. They are nil if there is nothing to average, or several agents.
	Score          *float64     `json:"score"`
	ScoreOf        string       `json:"scoreOf"`
	ScoreCompleted *float64     `json:"scoreCompleted"`
	Agents         []AgentScore `json:"agents,omitempty"`
}

// ScoreWithFaulted is the value of Summary.ScoreOf.
const ScoreWithFaulted = "withFaulted"

// AgentScore is the score of one agent of several.
type AgentScore struct {
	Agent          string   `json:"agent"`
	Score          *float64 `json:"score"`
	ScoreCompleted *float64 `json:"scoreCompleted"`
}

// TaskOverrides are the changes to the limits of a run's tasks. They are tasks.Overrides.
type TaskOverrides struct {
	// TimeoutMultiplier multiplies every time limit that has no multiplier of its own; 0 is 1.
	TimeoutMultiplier float64 `json:"timeoutMultiplier,omitempty"`
	// AgentTimeoutMultiplier multiplies agent.timeout_sec, VerifierTimeoutMultiplier
	// verifier.timeout_sec, and BuildTimeoutMultiplier environment.build_timeout_sec.
	AgentTimeoutMultiplier    float64 `json:"agentTimeoutMultiplier,omitempty"`
	VerifierTimeoutMultiplier float64 `json:"verifierTimeoutMultiplier,omitempty"`
	BuildTimeoutMultiplier    float64 `json:"buildTimeoutMultiplier,omitempty"`
	// CPUs, MemoryMB and StorageMB replace those of [environment]; 0 leaves them as they are.
	CPUs      float64 `json:"cpus,omitempty"`
	MemoryMB  int     `json:"memoryMb,omitempty"`
	StorageMB int     `json:"storageMb,omitempty"`
}
