package wait

import (
	"context"
	"encoding/json"
	"errors"
)

// Question is what a job wants to know from a person before it goes on. Two are the same if all of
// it is equal.
type Question struct {
	// Title is what the person is asked.
	Title string
	// Job is the key of the job, and Process what it is a job of.
	Job, Process string
	// Asked tells questions with the same title apart, as far as the source can; it may be empty.
	Asked string
}

// Answer is the answer to a question. ID is the same whenever the same answer is told.
type Answer struct {
	ID      string
	Payload json.RawMessage
}

// ErrNotTaken is the error of [Asker].Answer for a job that does not take the answer: it asks
// nothing any more, or something that this does not answer.
var ErrNotTaken = errors.New("the job does not take the answer")

// Asker is a source whose jobs may ask a person something.
type Asker interface {
	Source
	// Answer tells a job an answer, unless it has been told the one with this ID. The error is
	// ErrNotTaken, or as that of Check.
	Answer(ctx context.Context, j Job, a Answer) error
}

// Spec is the trigger that waits for the answer.
func (q Question) Spec() (Spec, error) {
	payload := map[string]string{"what": "question", "title": q.Title, "job": q.Job, "process": q.Process}
	if q.Asked != "" {
		payload["asked"] = q.Asked
	}
	data, err := json.Marshal(payload)
	return Spec{Type: TypeTask, Name: string(TypeTask), Payload: data}, err
}
