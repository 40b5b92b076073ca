package store

import (
	"strconv"
	"strings"

	"github.com/google/uuid"
)

// NewRunID makes a run id, a UUIDv7.
func NewRunID() string { return uuid.Must(uuid.NewV7()).String() }

// KeyedRunID derives the id of a run from the key with which a caller asks a service for it: a
// UUIDv5 of store, caller and key.
func KeyedRunID(storeID, caller, key string) string { return derive(storeID, "run", caller, key) }

// RolloutID derives a rollout's id, a UUIDv5 of run, evaluation, agent and epoch. runID need not be
// a UUID.
func RolloutID(runID, evaluationID, agent string, epoch int) string {
	return derive(runID, evaluationID, agent, strconv.Itoa(epoch))
}

// TriggerID derives a trigger's id, a UUIDv5 of rollout, interrupt id, occurrence and sibling.
func TriggerID(rolloutID, interruptID string, occurrence, sibling int) string {
	return derive(rolloutID, interruptID, strconv.Itoa(occurrence), strconv.Itoa(sibling))
}

// EvaluatorTriggerID derives the id of a trigger of an evaluator, a UUIDv5 of rollout, evaluator,
// occurrence, and number among what the evaluator waits for at once. No interrupt of an agent leads
// to the same id.
func EvaluatorTriggerID(rolloutID, evaluatorID string, occurrence, number int) string {
	return derive(derive(rolloutID, "evaluator:"+evaluatorID), strconv.Itoa(occurrence), strconv.Itoa(number))
}

// CallID derives the id of a call of a tool, a UUIDv5 of rollout, server, tool, digest of the
// arguments and ordinal.
func CallID(rolloutID string, key CallKey, ordinal int) string {
	return derive(rolloutID, "call", key.Server, key.Tool, key.Arguments, strconv.Itoa(ordinal))
}

// derive joins with a separator that is no part of an id.
func derive(base string, parts ...string) string {
	space, err := uuid.Parse(base)
	if err != nil {
		space = uuid.NewSHA1(uuid.NameSpaceURL, []byte("evalrun:"+base))
	}
	return uuid.NewSHA1(space, []byte(strings.Join(parts, "\x00"))).String()
}
