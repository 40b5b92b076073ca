package schemas

import (
	"encoding/json"
	"time"

	"github.com/evalrun/evalrun/eval"
)

// Rollout is one entry of evaluationSetResults: one attempt of one agent at one evaluation.
type Rollout struct {
	EvaluationID   string   `json:"evaluationId"`
	EvaluationName string   `json:"evaluationName"`
	RolloutID      string   `json:"rolloutId"`
	Agent          string   `json:"agent"`
	Epoch          int      `json:"epoch"`
	Status         State    `json:"status"`
	Score          *float64 `json:"score"`
	Error          *Fault   `json:"error"`
	// FaultOwner is "agent" if the fault is a failure of the agent, "environment" if it is missing
	// data.
	FaultOwner string       `json:"faultOwner,omitempty"`
	ResumedBy  []Resumption `json:"resumedBy"`
	// MCPServers has a verdict for each server that was declared for the agent.
	MCPServers []MCPServer `json:"mcpServers"`
	// Isolation is the isolation of the agent's processes: "none" for a function agent.
	Isolation string `json:"isolation"`
	// Environment is the environment of a task: "host" for this machine's own system.
	Environment string `json:"environment,omitempty"`
	// Image is the digest of the image in which the agent worked; empty if it was none.
	Image                string      `json:"image,omitempty"`
	Segments             int         `json:"segments"`
	EvaluationRunResults []Evaluated `json:"evaluationRunResults"`
	// Rescoring is the number of the rescoring that gave the results; 0 if the rollout was not scored
	// again.
	Rescoring int `json:"rescoring,omitempty"`
	// Outdated says that the results come from other evaluators or criteria than those by which the
	// run is judged. They count in no statistics.
	Outdated bool `json:"outdated,omitempty"`
	// NotRescored says why the last rescoring left the rollout as it was.
	NotRescored          string          `json:"notRescored,omitempty"`
	AgentExecutionOutput *AgentExecution `json:"agentExecutionOutput"`
	// EvaluatorTriggers are the triggers that its evaluators wait for, while it is scoring.
	EvaluatorTriggers []Trigger `json:"evaluatorTriggers,omitempty"`
	Clocks            Clocks    `json:"clocks"`
	// AgentVersion is the version that the agent says it has.
	AgentVersion string `json:"agentVersion,omitempty"`
	// LimitsWithoutEffect are the limits of a task that the machine could not keep.
	LimitsWithoutEffect []LimitWithoutEffect `json:"limitsWithoutEffect,omitempty"`
	// RefusedConnections are the connections that the agent was refused because of its task's
	// allowlist.
	RefusedConnections *RefusedConnections `json:"refusedConnections,omitempty"`
	// Limit is the limit that ended the agent, if its work until then was scored.
	Limit *Fault `json:"limit,omitempty"`
	// Cached is the rollout whose output this one has, because it would have been the same; nil if the
	// agent was run.
	Cached *Cached `json:"cached,omitempty"`
	// SimulatedUser is the user who was played by a model; nil if none was.
	SimulatedUser *SimulatedUser `json:"simulatedUser,omitempty"`
	// Usage is the usage of the agent.
	Usage *Usage `json:"usage,omitempty"`
	// Steps are the steps that have ended, of a task of several steps.
	Steps []Step `json:"steps,omitempty"`
	// TaskSource says where the task comes from, if it was fetched or is one of a registry.
	TaskSource *TaskSource `json:"taskSource,omitempty"`
	// TaskDigest is the digest of the files of the task that was run, tests and solution among them.
	TaskDigest string `json:"taskDigest,omitempty"`
	// Inputs, ExpectedOutput, Criteria (by evaluator), Tags and Metadata are the evaluation's.
	Inputs         json.RawMessage            `json:"inputs,omitempty"`
	ExpectedOutput json.RawMessage            `json:"expectedOutput,omitempty"`
	Criteria       map[string]json.RawMessage `json:"criteria,omitzero"`
	Tags           []string                   `json:"tags,omitempty"`
	Metadata       json.RawMessage            `json:"metadata,omitempty"`
	// Cluster names a group of evaluations that are alike.
	Cluster string `json:"cluster,omitempty"`
	// StartedAt is when the first segment began, FinishedAt when the rollout ended.
	StartedAt  *time.Time `json:"startedAt,omitempty"`
	FinishedAt *time.Time `json:"finishedAt,omitempty"`
	// Logs are the files that the segments have left, relative to the store's folder,
	// slash-separated.
	Logs []string `json:"logs,omitempty"`
}

// LimitWithoutEffect is a limit of a task that the machine could not keep.
type LimitWithoutEffect struct {
	// Key is the key in task.toml.
	Key    string `json:"key"`
	Reason string `json:"reason"`
}

// Cached is a rollout whose output another one has.
type Cached struct {
	RunID     string    `json:"runId"`
	RolloutID string    `json:"rolloutId"`
	At        time.Time `json:"at"`
	// WorkingMs is the time that the agent took then.
	WorkingMs int64 `json:"workingMs"`
}

// SimulatedUser is a user who was played by a model.
type SimulatedUser struct {
	Messages int `json:"messages"`
	// Ended is why the conversation was over: reached, given-up, phrase or messages.
	Ended string `json:"ended,omitempty"`
	// Usage is what they have used of models, which is no use of the agent's.
	Usage []eval.Usage `json:"usage"`
}

// State is the state of a rollout.
type State string

// The states of a rollout.
const (
	StatePending    State = "pending"
	StateRunning    State = "running"
	StateSuspended  State = "suspended"
	StateEvaluating State = "evaluating"
	// StateScoring means that the rollout's agent has finished, and that one of its evaluators waits.
	StateScoring   State = "scoring"
	StateCompleted State = "completed"
	StateFaulted   State = "faulted"
	StateCancelled State = "cancelled"
)

// IsTerminal reports whether a rollout in the state can no longer change.
func (s State) IsTerminal() bool {
	return s == StateCompleted || s == StateFaulted || s == StateCancelled
}

// Fault is why a segment or a rollout failed.
type Fault struct {
	Category string `json:"category"`
	Message  string `json:"message"`
}

func (f *Fault) Error() string { return f.Category + ": " + f.Message }

// Resumption is a segment that resumed a rollout.
type Resumption struct {
	Segment    int      `json:"segment"`
	TriggerIDs []string `json:"triggerIds"`
	// At is when its first attempt began; nil if that attempt left nothing behind.
	At *time.Time `json:"at"`
	// Answers say how the wait for each of these triggers ended.
	Answers []Answer `json:"answers,omitempty"`
	// Session says how an agent's session was continued: resume, load or replay. Note says why it was
	// not continued in a better way.
	Session string `json:"session,omitempty"`
	Note    string `json:"note,omitempty"`
}

// Answer says how the wait for a trigger has ended.
type Answer struct {
	TriggerID string `json:"triggerId"`
	// Status is successful, faulted, cancelled or expired.
	Status string `json:"status"`
	// By is a source, a command of evalrun, or a token of its service that delivered it. Person is the
	// person who answered, if that is known.
	By     string    `json:"by"`
	Person string    `json:"person,omitempty"`
	At     time.Time `json:"at"`
	// CheckedAt is when its source was last asked, nil if never.
	CheckedAt *time.Time `json:"checkedAt,omitempty"`
	// Played says where the answer stands if a person or a job was played; empty if none was.
	Played string `json:"played,omitempty"`
}

// MCPServer is the outcome of an MCP server that was declared for an agent.
type MCPServer struct {
	Name      string `json:"name"`
	Transport string `json:"transport"`
	// Verdict is sent if the agent was given the server; bridged if it was given a stdio server in
	// its place; else unsupported, unreachable, no-tools, hidden or deferred, with a Reason.
	Verdict string `json:"verdict"`
	Reason  string `json:"reason,omitempty"`
	// Calls counts the calls of its tools, Held those that were held open because the work that they
	// had started would not outlive evalrun.
	Calls int `json:"calls"`
	Held  int `json:"held,omitempty"`
	// NotOffered are its tools that no request to the agent's model has offered, although others were
	// offered.
	NotOffered []string `json:"notOffered,omitempty"`
}

// TaskSource is the origin of a task that was fetched from a git repository, or is one of a
// registry.
type TaskSource struct {
	// Registry is the name of its file; Dataset and Version name the data set there.
	Registry string `json:"registry,omitempty"`
	Dataset  string `json:"dataset,omitempty"`
	Version  string `json:"version,omitempty"`
	// GitURL is the repository, Commit a full id, Path the folder there.
	GitURL string `json:"gitUrl,omitempty"`
	Commit string `json:"commit,omitempty"`
	Path   string `json:"path,omitempty"`
	// Digest is the digest of the task's files.
	Digest string `json:"digest"`
}

// String returns the source in one line.
func (s *TaskSource) String() string {
	line := s.Digest
	if s.GitURL != "" {
		line = "git+" + s.GitURL + "#" + s.Commit + ":" + s.Path + ", " + line
	}
	if s.Dataset != "" {
		line = s.Dataset + "@" + s.Version + " of " + s.Registry + ", " + line
	}
	return line
}

// Step is the end of one step of a task.
type Step struct {
	Name string `json:"name"`
	// Reward is nil if the step's verifier left none; then Error says why.
	Reward *float64 `json:"reward"`
	// RewardName is the name of the number that became the reward, if it is one of the Metrics.
	RewardName string             `json:"rewardName,omitempty"`
	Metrics    map[string]float64 `json:"metrics,omitempty"`
	Error      string             `json:"error,omitempty"`
	// Notes say what was left out of the files of the step, and what is missing of them.
	Notes []string `json:"notes,omitempty"`
}

// Evaluated is the result of one evaluator for a rollout.
type Evaluated struct {
	EvaluatorName string           `json:"evaluatorName"`
	EvaluatorID   string           `json:"evaluatorId"`
	Result        EvaluationResult `json:"result"`
	IsLineResult  bool             `json:"isLineResult"`
	// Rescoring is the number of the rescoring that has asked the evaluator, 0 if none has.
	Rescoring int `json:"rescoring,omitempty"`
}

// EvaluationResult holds a score, or the reason why there is none in NotRun or Error.
type EvaluationResult struct {
	Score   *float64        `json:"score"`
	Details json.RawMessage `json:"details,omitempty"`
	// Comparison holds the values that the evaluator compared, nil if it compares nothing or the score
	// is the best.
	Comparison *eval.Comparison `json:"comparison,omitempty"`
	// Scale is the score that means perfect if that is not 1: 100 for UiPath's legacy evaluators.
	Scale float64 `json:"scale,omitempty"`
	// Ratings are the ratings of the people who were asked; the score was made of them.
	Ratings []Rating `json:"ratings,omitempty"`
	// StartedAt is when the evaluator was asked; for one that waited, the last time. It is nil if the
	// evaluator was not run or nobody noted it. EvaluationTime is how long it then took, in seconds.
	StartedAt      *time.Time `json:"startedAt,omitempty"`
	EvaluationTime float64    `json:"evaluationTime"`
	// Error says how the evaluator failed, which gives no score, or why the agent's output does not
	// fit it, which gives the score 0.
	Error string `json:"error,omitempty"`
	// ErrorCategory says in one word why a judge has given no verdict.
	ErrorCategory eval.JudgeCategory `json:"errorCategory,omitempty"`
	NotRun        string             `json:"notRun,omitempty"`
	// Judge says how the result came about if models have given it.
	Judge *eval.Judged `json:"judge,omitempty"`
}

// Rating is the rating of a rollout by one person.
type Rating struct {
	Rater         string    `json:"rater,omitempty"`
	Score         float64   `json:"score"`
	Label         string    `json:"label,omitempty"`
	Justification string    `json:"justification,omitempty"`
	At            time.Time `json:"at"`
}

// AgentExecution is the work of the agent; a rollout that has not come to a stop yet has none.
type AgentExecution struct {
	// ExecutionTime is the working time of all segments in seconds.
	ExecutionTime float64         `json:"execution_time"`
	Result        ExecutionResult `json:"result"`
	Trace         Trace           `json:"trace"`
}

// ExecutionResult is UiPath's runtime result.
type ExecutionResult struct {
	// Status is successful, faulted or suspended.
	Status Status          `json:"status"`
	Output json.RawMessage `json:"output"`
	Error  *Fault          `json:"error"`
	// Trigger is the first of Triggers.
	Trigger  *Trigger  `json:"trigger"`
	Triggers []Trigger `json:"triggers"`
}

// Trace holds the spans of all segments in order, as the agent wrote them.
type Trace struct {
	Spans []json.RawMessage `json:"spans"`
}

// Trigger is something that a suspended rollout waits for, or a delivery that it has not taken yet.
type Trigger struct {
	TriggerID   string          `json:"trigger_id"`
	InterruptID string          `json:"interrupt_id"`
	Type        string          `json:"trigger_type"`
	Name        string          `json:"trigger_name"`
	ItemKey     string          `json:"item_key"`
	FolderPath  *string         `json:"folder_path"`
	Payload     json.RawMessage `json:"payload"`
	FolderKey   string          `json:"folder_key,omitempty"`
	// ResumeTime is when a timer fires, Deadline when the suspension times out.
	ResumeTime *time.Time `json:"resume_time,omitempty"`
	Deadline   *time.Time `json:"deadline,omitempty"`
	// ExpiresAt is when the source forgets the result.
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
	// Purpose is PurposeEvaluator if not the agent but the evaluator EvaluatorID waits.
	Purpose     string `json:"purpose,omitempty"`
	EvaluatorID string `json:"evaluator_id,omitempty"`
	// Failures counts how often in a row its source could not be asked, LastError says why.
	Failures  int    `json:"failures,omitempty"`
	LastError string `json:"last_error,omitempty"`
	// CheckedAt is when its source was last asked, as of the writing of the document; nil if never. A
	// check without news does not change the run or its revision.
	CheckedAt *time.Time `json:"checked_at,omitempty"`
	// Played says where the answer stands that will be played.
	Played string `json:"played,omitempty"`
}

// PurposeEvaluator is the purpose of a trigger for which an evaluator waits.
const PurposeEvaluator = "evaluator"

// Clocks say where a rollout's time went.
type Clocks struct {
	WallMs    int64 `json:"wallMs"`
	WorkingMs int64 `json:"workingMs"`
	WaitingMs int64 `json:"waitingMs"`
	// ScoringMs is the part of WaitingMs in which an evaluator waited.
	ScoringMs    int64 `json:"scoringMs,omitempty"`
	QueuedMs     int64 `json:"queuedMs"`
	EvaluatingMs int64 `json:"evaluatingMs"`
}

// Usage is the usage of an agent in all attempts of all segments, also of those that were repeated.
type Usage struct {
	ToolCalls int `json:"toolCalls"`
	// AnswersLeftOut counts the answers of a model that were left out of a conversation that had become
	// too long, and Summaries the summaries in their place.
	AnswersLeftOut int `json:"answersLeftOut,omitempty"`
	Summaries      int `json:"summaries,omitempty"`
	// Source says who counted: proxy, output, trace or agent; empty if nobody did. Total is the sum of
	// Models, and nil if nobody counted.
	Source string       `json:"source,omitempty"`
	Total  *eval.Usage  `json:"total,omitempty"`
	Models []eval.Usage `json:"models,omitempty"`
	// Model holds the counts of evalrun's model proxy; nil if the agent did not go through it.
	Model *ModelUsage `json:"model"`
	// Agent is the last report of the agent itself.
	Agent json.RawMessage `json:"agent"`
}

// ModelUsage are the calls of models: those of the agent's own loop, and those that it made beside
// it, such as for titles or summaries.
type ModelUsage struct {
	Main ModelCalls `json:"main"`
	Side ModelCalls `json:"side"`
}

// ModelCalls counts calls of models, and their tokens as the provider counts them.
type ModelCalls struct {
	Calls int `json:"calls"`
	// Aborted counts the calls that the agent gave up before they were answered.
	Aborted int `json:"aborted"`
	// Unmetered counts the calls whose answers did not report their usage: their tokens are missing
	// below.
	Unmetered int `json:"unmetered"`
	// Errors counts failed calls by HTTP status, or under unreachable or stream.
	Errors map[string]int `json:"errors"`
	// InputTokens are all tokens of the input, those read from and written to a cache included.
	InputTokens       int64 `json:"inputTokens"`
	CachedInputTokens int64 `json:"cachedInputTokens"`
	CacheWriteTokens  int64 `json:"cacheWriteTokens"`
	// OutputTokens are all tokens of the output, those of its reasoning included.
	OutputTokens    int64 `json:"outputTokens"`
	ReasoningTokens int64 `json:"reasoningTokens"`
	// LatencyMs is the time from request to end of all calls together, FirstByteMs that until the
	// first byte of the answer.
	LatencyMs   int64 `json:"latencyMs"`
	FirstByteMs int64 `json:"firstByteMs"`
	// Models counts calls by the model that was asked for.
	Models map[string]int `json:"models"`
}
