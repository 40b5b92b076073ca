// Package eval holds what an evaluation is and how it is scored: eval sets and their evaluations,
// evaluators, scores and the statistics over them.
//
// [Load] reads an eval set, [New] makes an evaluator of a definition, and [Statistics] folds
// results into a [Summary] of means, intervals and pass rates, which [Thresholds] judge. The
// package runs no agent and knows no store; what an evaluator sees of a rollout is a [Subject].
//
// The formats are UiPath's, and so are the semantics of the deterministic evaluators, down to how
// Python compares and prints values. They differ where UiPath's would harm others: an evaluator
// that finds no criteria fails by itself here, and takes the whole evaluation with it there.
package eval

import (
	"encoding/json"
	"time"

	"github.com/evalrun/evalrun/eval/stats"
	"github.com/evalrun/evalrun/internal/input"
)

// Set is an eval set in the form in which evalrun runs it: migrated, its evaluators found, its
// defaults filled in. It is stored with the run as JSON, so that a run is resumed with what it was
// started with.
type Set struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// Path is the file that the set was read from, as it was given.
	Path string `json:"path"`
	// Digest is that of the file, empty if there is none.
	Digest      string       `json:"digest,omitempty"`
	Evaluators  []Definition `json:"evaluators"`
	Evaluations []Evaluation `json:"evaluations"`
	// Epochs is how often each evaluation is run (1 if the set does not say), Reduce how the scores
	// of its epochs become one.
	Epochs int     `json:"epochs"`
	Reduce Reducer `json:"reduce"`
	// Interval is how intervals are computed; empty for stats.Bounded.
	Interval   stats.Method `json:"interval,omitempty"`
	Limits     Limits       `json:"limits"`
	Retry      Retry        `json:"retry"`
	Thresholds Thresholds   `json:"thresholds"`
	// Faults says for categories of faults whose they are ("agent" or "environment") where that is
	// not as usual.
	Faults map[string]string `json:"faults,omitempty"`
	// Prices are what the models of agents cost.
	Prices Prices `json:"prices,omitempty"`
	// Tags are those of every evaluation of the set, Metadata is an object for people and programs;
	// nothing depends on it.
	Tags     []string        `json:"tags,omitempty"`
	Metadata json.RawMessage `json:"metadata,omitempty"`
	// Dataset is the file of which each row is an evaluation, nil if there is none. Package dataset
	// reads it.
	Dataset *Dataset `json:"dataset,omitempty"`
	// Tasks are globs of task directories, relative to the set's folder.
	Tasks []string `json:"tasks,omitempty"`
	// TaskDataset is the data set of a registry that the set was made of, nil if there is none.
	TaskDataset *TaskDataset `json:"taskDataset,omitempty"`

	// DefaultCriteria are those that every evaluation gets for the evaluators for which it has none of
	// its own. Those of the set's file have them already; [Set.AddDefaults] is for others.
	DefaultCriteria map[string]json.RawMessage `json:"-"`
	// Node is the set as it stands in the file, for whoever finds something wrong with it later.
	Node *input.Node `json:"-"`
	// Agents, Jobs, Notify and DatasetNode are the values of `agent`/`agents` (one node an agent),
	// `jobs`, `notify` and `dataset` as they stand in the file; packages agent, wait, notify and
	// dataset read them.
	Agents      []*input.Node `json:"-"`
	DatasetNode *input.Node   `json:"-"`
	Jobs        *input.Node   `json:"-"`
	Notify      *input.Node   `json:"-"`
	// Judges is the value of `judges`, which package judge reads.
	Judges *input.Node `json:"-"`
}

// Dataset is a file of which each row is an evaluation of a set.
type Dataset struct {
	// File is relative to the eval set's folder, slash-separated.
	File string `json:"file"`
	// Digest is that of the file when it was read, Rows the number of its rows.
	Digest string `json:"digest"`
	Rows   int    `json:"rows"`
}

// Evaluation is one case of a set.
type Evaluation struct {
	ID     string          `json:"id"`
	Name   string          `json:"name"`
	Inputs json.RawMessage `json:"inputs"`
	// ExpectedOutput is the evaluation-level expected output, nil if there is none.
	ExpectedOutput json.RawMessage `json:"expectedOutput,omitempty"`
	// Criteria maps an evaluator's id to its criteria, which may be null. An evaluator that is not
	// a key does not score this evaluation.
	Criteria              map[string]json.RawMessage `json:"criteria"`
	ExpectedAgentBehavior string                     `json:"expectedAgentBehavior,omitempty"`
	// Cluster names a group of evaluations that are alike, such as variants of one text; standard
	// errors are clustered by it.
	Cluster string `json:"cluster,omitempty"`
	// Tags choose evaluations, and have rows of their own in the statistics. Metadata is an object for
	// people and programs; nothing depends on it.
	Tags     []string        `json:"tags,omitempty"`
	Metadata json.RawMessage `json:"metadata,omitempty"`
	// NotRunnable says why the evaluation cannot be run here (mocked tools, generated input); empty
	// if it can.
	NotRunnable string `json:"notRunnable,omitempty"`
	// Task is the task directory that the evaluation is, nil if it is none.
	Task *Task `json:"task,omitempty"`
	// References maps the id of an evaluator that compares with another run to the outputs that it
	// compares with.
	References map[string][]ReferenceOutput `json:"references,omitempty"`
}

// Task says where a task directory is.
type Task struct {
	// Dir is relative to the eval set's folder, slash-separated.
	Dir string `json:"dir"`
	// Digest is that of the directory when the run was planned (see tasks.Digest).
	Digest string `json:"digest"`
	// Image says that the task runs in its image.
	Image bool `json:"image,omitempty"`
	// Services is the engine, podman or docker, whose containers the task runs in because services
	// of a compose file stand beside it; empty if it has none.
	Services string `json:"services,omitempty"`
	// Source is the address of the folder in a git repository that the task was fetched from, with
	// the commit's full id; empty if it was not fetched.
	Source string `json:"source,omitempty"`
	// OfDataset says that it is one of the tasks of the set's TaskDataset.
	OfDataset bool `json:"ofDataset,omitempty"`
}

// TaskDataset is a data set of a registry, whose tasks a set has.
type TaskDataset struct {
	// Registry is the name of its file.
	Registry string `json:"registry,omitempty"`
	Name     string `json:"name"`
	Version  string `json:"version"`
	// Metrics sum up the rewards: mean, sum, min, max, uv-script. Without any it is the mean.
	Metrics []string `json:"metrics,omitempty"`
}

// Definition is an evaluator as its file or the eval set defines it.
type Definition struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// Type is UiPath's evaluator type id (uipath-exact-match, …), or "command", or for a legacy
	// evaluator file "legacy-equals", "legacy-json-similarity", "legacy-csv-column-exact-match",
	// "legacy-llm-judge", "legacy-trajectory".
	Type string `json:"type"`
	// Weight of the evaluator in an evaluation's score; 1 by default.
	Weight float64 `json:"weight"`
	// Config is the evaluator's configuration (`evaluatorConfig`; for a legacy file the whole
	// file).
	Config json.RawMessage `json:"config"`
	// Dir is the folder relative to the eval set's own from which a command evaluator is run;
	// slash-separated.
	Dir string `json:"dir,omitempty"`
	// NotRun says why the evaluator cannot be run here (an LLM judge without a model, a custom
	// Python evaluator); empty if it can.
	NotRun string `json:"notRun,omitempty"`
	// Reference is the run with whose outputs the evaluator compares those that it scores, as it was
	// found when the run was planned; nil if there is none.
	Reference *ReferenceRun `json:"reference,omitempty"`
}

// TypeVerifier is the type of the evaluator that a set with tasks has: it runs a task's own
// verifier, whose reward is its score. Package runner runs it, because it needs the rollout's
// environment; [New] does not know it.
const TypeVerifier = "verifier"

// Verifier is its definition.
var Verifier = Definition{ID: "verifier", Name: "verifier", Type: TypeVerifier, Weight: 1}

// VerifierDetails are the details of its results; a result without them has the reward alone.
type VerifierDetails struct {
	// Details is what else the tests have said, an object, or null.
	Details json.RawMessage `json:"details"`
	// Metrics are the other numbers that the tests have written.
	Metrics map[string]float64 `json:"metrics"`
	// Notes say what is missing of the task's artifacts.
	Notes []string `json:"notes,omitempty"`
	// RewardName is the name of the number that the reward is, if that is one of the Metrics.
	RewardName string `json:"rewardName,omitempty"`
	// Suspicious is a line of what the tests have printed, if they say 0 and it says that they could
	// not get what they need. It changes no score.
	Suspicious string `json:"suspicious,omitempty"`
}

// Limits bound a rollout. A zero duration means no limit.
type Limits struct {
	// Timeout is the working time that all segments of a rollout may take together.
	Timeout time.Duration `json:"timeoutNs,omitempty"`
	// SegmentTimeout is the working time of one segment.
	SegmentTimeout time.Duration `json:"segmentTimeoutNs,omitempty"`
	// SuspendTimeout is how long one suspension may last, from its commit.
	SuspendTimeout time.Duration `json:"suspendTimeoutNs,omitempty"`
	// ScoreTimeout is how long an evaluator may wait for something, from the commit of that.
	ScoreTimeout time.Duration `json:"scoreTimeoutNs,omitempty"`
	// EvaluatorTimeout is how long one command evaluator may take (default 5m).
	EvaluatorTimeout time.Duration `json:"evaluatorTimeoutNs,omitempty"`
	// SoftWait is how long a tool call that has started a long-running job is held open before the
	// rollout is suspended; 0 is the gateway's default (40 s).
	SoftWait time.Duration `json:"softWaitNs,omitempty"`
	// Suspensions is how often a rollout may be suspended (default 100).
	Suspensions int `json:"suspensions"`
	// OutputBytes is how much an agent may print on stdout in one segment (default 16 MiB).
	OutputBytes int64 `json:"outputBytes"`
	// Tokens and Cost are what a rollout may use of models, in all segments together: input and
	// output tokens, and US dollars; 0 means no limit.
	Tokens int64   `json:"tokens,omitempty"`
	Cost   float64 `json:"cost,omitempty"`
}

// Retry says which failed segments are repeated.
type Retry struct {
	// Max counts the attempts of a segment beyond the first; 0 means none.
	Max int `json:"max"`
	// On are the fault categories that are repeated; "*" means every one.
	On []string `json:"on,omitempty"`
	// Backoff before the first repetition (default 1s); doubled for each further one up to
	// MaxBackoff (default 1m).
	Backoff    time.Duration `json:"backoffNs"`
	MaxBackoff time.Duration `json:"maxBackoffNs"`
}

// Reducer says how the scores of an evaluation's epochs become one.
type Reducer string

// The reducers.
const (
	ReduceMean       Reducer = "mean"
	ReduceAtLeastOne Reducer = "atLeastOne" // 1 if one epoch passes, else 0
	ReduceAll        Reducer = "all"        // 1 if every epoch passes, else 0
)

// Subject is what an evaluator sees of one finished rollout.
type Subject struct {
	Evaluation Evaluation
	RolloutID  string
	Agent      string
	Epoch      int
	// Output is the agent's output, a JSON value.
	Output json.RawMessage
	// Trace holds the spans of each segment, one OpenTelemetry span a line, as the agent wrote them
	// (see ToolCalls).
	Trace [][]json.RawMessage
	// Dir is the eval set's folder and Workspace the rollout's, absolute.
	Dir       string
	Workspace string
	// Env is the environment of a command evaluator.
	Env []string
	// Judge asks models; nil if there is none to ask.
	Judge Judge
	// Results are what other evaluators have said before, for people who may see it.
	Results []Result
}

// Result is what one evaluator says of one rollout. Score is nil if the evaluator was not run,
// which NotRun says, or if it failed, which Error says. Where the agent's output or the criteria do
// not fit the evaluator (wrong path, missing criteria, unknown class), Error says so and Score is
// 0.
type Result struct {
	EvaluatorID   string `json:"evaluatorId"`
	EvaluatorName string `json:"evaluatorName"`
	// Score on the evaluator's own scale: 0 to 1, of legacy evaluators 0 to 100.
	Score *float64 `json:"score"`
	// Scale is 1 or 100: the score that means perfect.
	Scale float64 `json:"scale"`
	// Ratings are those of the people who were asked; the score was made of them.
	Ratings []Rating `json:"ratings,omitempty"`
	// Details is a string or an object, nil if the evaluator has none.
	Details json.RawMessage `json:"details,omitempty"`
	// Comparison is what the evaluator has compared, nil if it compares nothing or the score is the
	// best.
	Comparison *Comparison `json:"comparison,omitempty"`
	// Error says what went wrong. ErrorCategory says it in one word of a judge that has given no
	// verdict.
	Error         string        `json:"error,omitempty"`
	ErrorCategory JudgeCategory `json:"errorCategory,omitempty"`
	// NotRun says why there is no score.
	NotRun string `json:"notRun,omitempty"`
	// Line marks the result of one line of a line-by-line evaluator; it counts in no average.
	Line bool `json:"line,omitempty"`
	// Judge says how the result came about; nil if no model was asked.
	Judge *Judged `json:"judge,omitempty"`
	// StartedAt is when the evaluator was asked, of one that has waited the last time; zero if it was
	// not run. Duration is how long it then took.
	StartedAt time.Time     `json:"startedAt,omitzero"`
	Duration  time.Duration `json:"durationNs"`
}
