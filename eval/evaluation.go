package eval

import (
	"encoding/json"
	"regexp"
	"strings"
	"sync"
)

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
	// WorkerTags are what a process must have to run a rollout of it.
	WorkerTags []string `json:"workerTags,omitempty"`
	// NotRunnable says why the evaluation cannot be run here (mocked tools, generated input); empty
	// if it can.
	NotRunnable string `json:"notRunnable,omitempty"`
	// Task is the task directory of the evaluation, nil if it has none.
	Task *Task `json:"task,omitempty"`
	// References maps the id of an evaluator that compares with another run to the outputs that it
	// compares with.
	References map[string][]ReferenceOutput `json:"references,omitempty"`
}

// Task says where a task directory is.
type Task struct {
	// Dir is relative to the eval set's folder, slash-separated.
	Dir string `json:"dir"`
	// Digest is the digest of the directory when the run was planned (see tasks.Digest).
	Digest string `json:"digest"`
	// Image says that the task runs in its image.
	Image bool `json:"image,omitempty"`
	// Services is the engine, podman or docker, in whose containers the task runs because services of
	// a compose file stand beside it; empty if it has none.
	Services string `json:"services,omitempty"`
	// Source is the address of the folder in the git repository from which the task was fetched, with
	// the commit's full id; empty if it was not fetched.
	Source string `json:"source,omitempty"`
	// OfDataset says that the task is one of the set's TaskDataset.
	OfDataset bool `json:"ofDataset,omitempty"`
}

// ReferenceOutput is an output with which some rollouts of an evaluation are compared.
type ReferenceOutput struct {
	// Agent and Epoch select the rollouts that are compared with it; empty and 0 mean all.
	Agent string `json:"agent,omitempty"`
	Epoch int    `json:"epoch,omitempty"`
	// RolloutID is the rollout that gave the output, empty if there is none.
	RolloutID string          `json:"rolloutId,omitempty"`
	Output    json.RawMessage `json:"output,omitempty"`
	// Missing says why there is no output.
	Missing string `json:"missing,omitempty"`
}

// guid matches the ids that UiPath takes for GUIDs and lower-cases. It is compiled on first use:
// that takes too long for the start of every process.
var guid = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(?i)[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)
})

// CanonicalID returns the form in which an evaluation's id is compared: UiPath lower-cases GUIDs.
func CanonicalID(id string) string {
	if guid().MatchString(id) {
		return strings.ToLower(id)
	}
	return id
}

// ClusterOf returns the group to which an evaluation belongs: the one that it names, or itself
// alone. The evaluation may be nil if nothing but its id is known.
func ClusterOf(id string, e *Evaluation) string {
	if e != nil && e.Cluster != "" {
		return "cluster " + e.Cluster
	}
	return "evaluation " + id
}

// Asks reports whether an evaluator is to score the evaluation.
func (e *Evaluation) Asks(def Definition) bool {
	if e == nil {
		return false
	}
	if def.Type == TypeVerifier {
		return e.Task != nil
	}
	_, ok := e.Criteria[def.ID]
	return ok
}
