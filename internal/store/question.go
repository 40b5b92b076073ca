package store

import (
	"context"
	"time"
)

// Questions are what jobs want to know from a person before they go on. A question is a trigger of
// its own, made while the trigger of its job waits. It resumes no rollout: what is delivered for it
// is told to the job, which is waited for as before. It has the deadline of the job's trigger, and
// ends with it.
type Questions interface {
	// Ask records that the job of a claimed trigger asks something, and ends the claim as
	// TriggerPending does. A question with the same Digest that is still open stays; every other
	// one ends. Nothing is asked while an answer is there that the job has not been told.
	Ask(ctx context.Context, t TriggerToken, q NewTrigger, next time.Duration) error
	// Questions returns the questions of a trigger that have not ended, in the order in which they
	// were asked.
	Questions(ctx context.Context, triggerID string) ([]Trigger, error)
	// QuestionTold records that the job was told the answer.
	QuestionTold(ctx context.Context, questionID string) error
	// EndQuestions ends the questions of a trigger whose job asks nothing any more: those that are
	// open are superseded, the others consumed.
	EndQuestions(ctx context.Context, triggerID string) error
}
