// Package eval has the words of evaluation: eval sets and their evaluations, evaluators and their
// results, the questions to judges, the use of models, and the states of a rollout.
//
// It knows no kind of evaluator. Package evalset reads eval sets, package kinds makes an
// [Evaluator] from a [Definition], and package summary folds results into means, intervals and pass
// rates, which [Thresholds] judge. None of them runs an agent or knows a store. An evaluator sees a
// rollout as a [Subject].
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
// defaults filled in. It is stored with the run as JSON, so that a resumed run has the set that it
// was started with.
type Set struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// Path is the file that the set was read from, as it was given.
	Path string `json:"path"`
	// Digest is the digest of the file, empty if there is none.
	Digest      string       `json:"digest,omitempty"`
	Evaluators  []Definition `json:"evaluators"`
	Evaluations []Evaluation `json:"evaluations"`
	// Epochs is how often each evaluation is run (1 if the set does not say). Reduce says how the
	// scores of its epochs become one.
	Epochs int     `json:"epochs"`
	Reduce Reducer `json:"reduce"`
	// Interval is the method that computes intervals; empty means stats.Bounded.
	Interval   stats.Method `json:"interval,omitempty"`
	Limits     Limits       `json:"limits"`
	Retry      Retry        `json:"retry"`
	Thresholds Thresholds   `json:"thresholds"`
	// Faults maps categories of faults to their owner ("agent" or "environment") where it is not the
	// usual one.
	Faults map[string]string `json:"faults,omitempty"`
	// Prices are the prices of the agents' models.
	Prices Prices `json:"prices,omitempty"`
	// Tags apply to every evaluation of the set. Metadata is an object for people and programs;
	// nothing depends on it.
	Tags     []string        `json:"tags,omitempty"`
	Metadata json.RawMessage `json:"metadata,omitempty"`
	// Dataset is the file whose rows are evaluations, nil if there is none. Package dataset reads it.
	Dataset *Dataset `json:"dataset,omitempty"`
	// Tasks are globs of task directories, relative to the set's folder.
	Tasks []string `json:"tasks,omitempty"`
	// TaskDataset is the data set of a registry from which the set was made, nil if there is none.
	TaskDataset *TaskDataset `json:"taskDataset,omitempty"`

	// DefaultCriteria are the criteria that every evaluation gets for the evaluators for which it has
	// none of its own. The evaluations of the set's file have them already; [Set.AddDefaults] gives
	// them to others.
	DefaultCriteria map[string]json.RawMessage `json:"-"`
	// Node is the set as it stands in the file, for problems that are found later.
	Node *input.Node `json:"-"`
	// Agents, Jobs, Notify and DatasetNode are the values of `agent`/`agents` (one node an agent),
	// `jobs`, `notify` and `dataset` as they stand in the file; packages agent, wait, notify and
	// dataset read them.
	Agents      []*input.Node `json:"-"`
	DatasetNode *input.Node   `json:"-"`
	Jobs        *input.Node   `json:"-"`
	Notify      *input.Node   `json:"-"`
	// Answers is the value of `answers`, and AnswersOf has those of single evaluations by their ids.
	Answers   *input.Node            `json:"-"`
	AnswersOf map[string]*input.Node `json:"-"`
	// Mocks is the value of `mocks`, and MocksOf has those of single evaluations by their ids.
	Mocks   *input.Node            `json:"-"`
	MocksOf map[string]*input.Node `json:"-"`
	// MockedFunctions are the values of `mockingStrategy` of evaluations, by their ids, as far as they can be
	// played here.
	MockedFunctions map[string]*input.Node `json:"-"`
	// Judges is the value of `judges`, which package judge reads.
	Judges *input.Node `json:"-"`
}

// Dataset is a file whose rows are evaluations of a set.
type Dataset struct {
	// File is relative to the eval set's folder, slash-separated.
	File string `json:"file"`
	// Digest is the digest of the file when it was read, Rows the number of its rows.
	Digest string `json:"digest"`
	Rows   int    `json:"rows"`
}

// TaskDataset is a data set of a registry whose tasks a set has.
type TaskDataset struct {
	// Registry is the name of the registry's file, or its address.
	Registry string `json:"registry,omitempty"`
	Name     string `json:"name"`
	Version  string `json:"version"`
	// Metrics sum up the rewards: mean, sum, min, max, uv-script. If there are none, the mean does.
	Metrics []string `json:"metrics,omitempty"`
}

// Limits bound a rollout. A zero duration means no limit.
type Limits struct {
	// Timeout is the working time that all segments of a rollout may take together.
	Timeout time.Duration `json:"timeoutNs,omitempty"`
	// SegmentTimeout is the working time of one segment.
	SegmentTimeout time.Duration `json:"segmentTimeoutNs,omitempty"`
	// SuspendTimeout is how long one suspension may last, from its commit.
	SuspendTimeout time.Duration `json:"suspendTimeoutNs,omitempty"`
	// ScoreTimeout is how long an evaluator may wait for something, from the commit of the wait.
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
	// Tokens and Cost limit how much a rollout may use of models, in all segments together: input and
	// output tokens, and US dollars; 0 means no limit.
	Tokens int64   `json:"tokens,omitempty"`
	Cost   float64 `json:"cost,omitempty"`
}

// Retry says which failed segments are repeated.
type Retry struct {
	// Max counts the attempts of a segment beyond the first; 0 means none.
	Max int `json:"max"`
	// On lists the fault categories whose segments are repeated; "*" means every one.
	On []string `json:"on,omitempty"`
	// Backoff is the time before the first repetition (default 1s). It is doubled for each further
	// one, up to MaxBackoff (default 1m).
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

// EvaluatorIDs are the ids of the set's evaluators, in their order.
func (s *Set) EvaluatorIDs() []string {
	out := make([]string, len(s.Evaluators))
	for i, def := range s.Evaluators {
		out[i] = def.ID
	}
	return out
}

// AddDefaults gives an evaluation the set's criteria where it has none of its own.
func (s *Set) AddDefaults(e *Evaluation) {
	for id, criteria := range s.DefaultCriteria {
		if _, ok := e.Criteria[id]; !ok {
			e.Criteria[id] = criteria
		}
	}
}

// BoundUsage reports whether the limits bound the use of models.
func (l Limits) BoundUsage() bool { return l.Tokens > 0 || l.Cost > 0 }
