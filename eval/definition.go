package eval

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

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
	// Dir is the folder in which a command evaluator runs, relative to the eval set's own;
	// slash-separated.
	Dir string `json:"dir,omitempty"`
	// NotRun says why the evaluator cannot be run here (an LLM judge without a model); empty if it can.
	NotRun string `json:"notRun,omitempty"`
	// Reference is the run whose outputs the evaluator compares with those that it scores, as it was
	// found when the run was planned; nil if there is none.
	Reference *ReferenceRun `json:"reference,omitempty"`
}

// TypeVerifier is the type of the evaluator that a set with tasks has: it runs a task's own
// verifier and takes its reward as the score. Package runner runs it, because it needs the
// rollout's environment; package kinds has no such kind.
const TypeVerifier = "verifier"

// TypeChecks is the type of the evaluator that runs the checks of an evaluation. ChecksID is the id
// that it has if the set does not define one.
const (
	TypeChecks = "checks"
	ChecksID   = "checks"
)

// Verifier is the definition of the evaluator of type TypeVerifier.
var Verifier = Definition{ID: "verifier", Name: "verifier", Type: TypeVerifier, Weight: 1}

// VerifierDetails are the details of a verifier's result; a result without them has the reward
// alone.
type VerifierDetails struct {
	// Details is an object with further reports of the tests, or null.
	Details json.RawMessage `json:"details"`
	// Metrics are the other numbers that the tests have written.
	Metrics map[string]float64 `json:"metrics"`
	// Notes say which parts of the task's artifacts are missing.
	Notes []string `json:"notes,omitempty"`
	// RewardName is the name of the number that became the reward, if it is one of the Metrics.
	RewardName string `json:"rewardName,omitempty"`
	// Suspicious is a line that the tests printed, if their reward is 0 and the line says that they
	// could not get something that they need. It changes no score.
	Suspicious string `json:"suspicious,omitempty"`
}

// Digest is the same for definitions that score in the same way. It does not depend on the run that
// a reference like "latest" meant.
func (d Definition) Digest() string {
	d.Name, d.Weight, d.Reference = "", 0, nil
	data, err := json.Marshal(d)
	if err != nil {
		return "" // its configuration was JSON when it was read
	}
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// ReferenceRun is another run whose outputs a judge compares with those that it scores.
type ReferenceRun struct {
	// Run is the name of the run as an evaluator gives it, or the id of the run that was meant.
	Run string `json:"run"`
	// Agent is the agent whose outputs are taken. If it is empty, they are taken from the agent with
	// the same name, or from the only one that the run has.
	Agent string `json:"agent,omitempty"`
	// Digest is the digest of the outputs, empty until they have been looked up.
	Digest string `json:"digest,omitempty"`
}

// MaxWeight is the greatest weight of an evaluator; beyond it a sum of weights would lose the small
// ones.
const MaxWeight = 1e6
