package runner

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/schemas"
)

// Trigger is something that a rollout waits for. Its JSON is what evalrun triggers --json prints.
type Trigger struct {
	TriggerID      string `json:"triggerId"`
	RunID          string `json:"runId"`
	RolloutID      string `json:"rolloutId"`
	EvaluationID   string `json:"evaluationId"`
	EvaluationName string `json:"evaluationName"`
	Agent          string `json:"agent"`
	Epoch          int    `json:"epoch"`
	InterruptID    string `json:"interruptId"`
	// Purpose is agent or evaluator, the one that waits. EvaluatorID is the evaluator.
	Purpose     string `json:"purpose"`
	EvaluatorID string `json:"evaluatorId,omitempty"`
	// AskedBy is the trigger whose job asks, if this is a question of a job to a person.
	AskedBy    string     `json:"askedBy,omitempty"`
	Type       string     `json:"type"`
	Source     string     `json:"source"`
	ItemKey    string     `json:"itemKey"`
	FolderPath string     `json:"folderPath,omitempty"`
	State      string     `json:"state"`
	CreatedAt  time.Time  `json:"createdAt"`
	Deadline   *time.Time `json:"deadline"`
	NextCheck  *time.Time `json:"nextCheck"`
	// LastError is why its source could not be asked the last time, or its job could not be started.
	// Failures counts how often in a row. CheckedAt is when its source was asked last, nil if never.
	LastError string `json:"lastError,omitempty"`
	Failures  int    `json:"failures,omitempty"`
	// Checks counts how often it was asked.
	CheckedAt *time.Time `json:"checkedAt,omitempty"`
	Checks    int        `json:"checks,omitempty"`
	// Machine is the name of the machine on which its job runs, if only evalrun there can ask for it.
	// Elsewhere says that it is another machine.
	Machine   string `json:"machine,omitempty"`
	Elsewhere bool   `json:"-"`
	// ExpiresAt is when the source forgets the result.
	ExpiresAt *time.Time      `json:"expiresAt,omitempty"`
	Payload   json.RawMessage `json:"payload"`
	// Note is a warning to read before approving; empty if there is none.
	Note string `json:"note,omitempty"`
	// Deliveries is set if all triggers are asked for.
	Deliveries []Delivered `json:"deliveries,omitempty"`

	// Open says that the trigger still waits, and Answer how the wait can be ended.
	Open   bool   `json:"-"`
	Answer Answer `json:"-"`
}

// Answer is a way to end the wait for a trigger.
type Answer int

// The answers.
const (
	// AnswerPoll: evalrun asks the trigger's source; resume the run.
	AnswerPoll Answer = iota
	// AnswerDecision: a person approves or denies.
	AnswerDecision
	// AnswerPayload: somebody delivers a payload.
	AnswerPayload
	// AnswerRating: a person rates what the agent has made.
	AnswerRating
)

// Delivered is a delivery for a trigger.
type Delivered struct {
	Disposition Disposition `json:"disposition"`
	Status      string      `json:"status"`
	By          string      `json:"by"`
	// Person is the person who answered, if known.
	Person     string    `json:"person,omitempty"`
	ReceivedAt time.Time `json:"receivedAt"`
	// Payload is the delivered payload.
	Payload json.RawMessage `json:"-"`
}

// UnreadableError says that a run of several cannot be read. The others are not harmed.
type UnreadableError struct {
	RunID string
	Err   error
}

func (e *UnreadableError) Error() string {
	return "the run " + e.RunID + " cannot be read: " + e.Err.Error()
}
func (e *UnreadableError) Unwrap() error { return e.Err }

// Triggers calls f with the triggers of a run, redacted, or of all runs if runID is empty. With all
// it includes triggers that wait no more, and deliveries. Of all runs it skips those that cannot be
// read, and the error at the end has an *[UnreadableError] of each.
func (s *Store) Triggers(ctx context.Context, runID string, all bool, f func(Trigger) error) error {
	redactors, unreadable := map[string]*redact.Redactor{}, map[string]bool{}
	var wrong []error
	err := s.st.Triggers(ctx, runID, all, func(t store.Trigger) error {
		if unreadable[t.RunID] {
			return nil
		}
		red, ok := redactors[t.RunID]
		if !ok {
			p, err := readPlanned(ctx, s.st, t.RunID, Variables{})
			switch {
			case err != nil && runID == "" && ctx.Err() == nil:
				unreadable[t.RunID], wrong = true, append(wrong, &UnreadableError{t.RunID, err})
				return nil
			case err != nil:
				return err
			}
			red, redactors[t.RunID] = p.red, p.red
		}
		var delivered []store.Delivered
		if all {
			var err error
			if delivered, err = s.st.Deliveries(ctx, t.ID); err != nil {
				return err
			}
		}
		out, err := ShowTrigger(t, delivered, red)
		if err != nil {
			return err
		}
		return f(out)
	})
	return errors.Join(append(wrong, err)...)
}

// ApprovalNote is the Note of a trigger, which is named as for [Store.Deliver]; empty if there is
// no such trigger yet.
func (s *Store) ApprovalNote(ctx context.Context, name string) (string, error) {
	t, err := s.st.Trigger(ctx, name)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return "", nil
	case err != nil:
		return "", err
	}
	p, err := readPlanned(ctx, s.st, t.RunID, Variables{})
	if err != nil {
		return "", err
	}
	shown, err := ShowTrigger(t, nil, p.red)
	return shown.Note, err
}

// ShowTrigger converts a trigger and its deliveries to the form that is shown. It is for evalrun's
// own service.
func ShowTrigger(t store.Trigger, delivered []store.Delivered, red *redact.Redactor) (Trigger, error) {
	out := newTrigger(t)
	for _, d := range delivered {
		out.Deliveries = append(out.Deliveries,
			Delivered{Disposition(d.Disposition), string(d.Status), d.By, d.Person, d.ReceivedAt, nil})
	}
	if err := out.redact(red); err != nil {
		return out, err
	}
	for i, d := range delivered {
		out.Deliveries[i].Payload = red.JSON(d.Payload)
	}
	return out, nil
}

func newTrigger(t store.Trigger) Trigger {
	var spec wait.Spec
	_ = json.Unmarshal(t.Spec, &spec) // the store keeps only marshalled specs
	out := Trigger{TriggerID: t.ID, RunID: t.RunID, RolloutID: t.RolloutID, EvaluationID: t.EvaluationID,
		EvaluationName: t.EvaluationName, Agent: t.Agent, Epoch: t.Epoch, InterruptID: t.ShownID(), AskedBy: t.AskedBy,
		Type: t.Type, Source: t.Source, ItemKey: t.ItemKey, FolderPath: t.FolderPath, State: string(t.State),
		CreatedAt: t.CreatedAt, LastError: t.LastError, Machine: t.Machine,
		Elsewhere: t.Machine != "" && t.Machine != store.ThisMachine().Name,
		ExpiresAt: spec.ExpiresAt, Payload: spec.Visible(),
		Open: t.State.IsOpen(), Failures: t.Failures, Checks: t.Checks, Answer: AnswerPayload}
	out.Purpose, out.EvaluatorID = "agent", t.EvaluatorID
	if t.EvaluatorID != "" {
		out.Purpose = schemas.PurposeEvaluator
	}
	if !t.Deadline.IsZero() {
		out.Deadline = &t.Deadline
	}
	if !t.NextDue.IsZero() {
		out.NextCheck = &t.NextDue
	}
	if !t.CheckedAt.IsZero() {
		out.CheckedAt = &t.CheckedAt
	}
	switch {
	case t.Source != wait.SourceExternal:
		out.Answer = AnswerPoll
	case t.Type == string(wait.TypeTask) && t.EvaluatorID != "":
		out.Answer = AnswerRating
	case t.Type == string(wait.TypeTask):
		out.Answer, out.Note = AnswerDecision, wait.ApprovalNote(out.Payload)
	}
	return out
}

// redact takes secrets out of all values of the trigger.
func (t *Trigger) redact(red *redact.Redactor) error {
	data, err := json.Marshal(t)
	if err != nil {
		return err
	}
	clean := Trigger{Open: t.Open, Answer: t.Answer, Elsewhere: t.Elsewhere}
	if err := json.Unmarshal(red.JSON(data), &clean); err != nil {
		return err
	}
	if t.Payload == nil {
		clean.Payload = nil // null would be read back
	}
	*t = clean
	return nil
}
