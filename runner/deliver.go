package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/wait"
)

// Delivery is delivered for a trigger. It is a payload, or with Failed or Cancelled the news that
// none will come.
type Delivery struct {
	// Payload is one JSON document.
	Payload json.RawMessage
	// Failed says that the job failed, with Message.
	Failed  bool
	Message string
	// Cancelled says that the job was cancelled.
	Cancelled bool
	// By says what delivers: a command, or a token of the service. Person is the person who answers,
	// empty if there is none or the name is not known.
	By     string
	Person string
	// Force also answers for a job whose source evalrun asks for the result. The job is then cancelled
	// where the source can do that.
	Force bool
	// ByJob says that the job itself delivers. Such a delivery is accepted even if evalrun asks the
	// job's source, and the job goes on.
	ByJob bool
}

// Disposition is the outcome of a delivery.
type Disposition string

// The dispositions.
const (
	// Accepted: the delivery counts for its trigger.
	Accepted = Disposition(store.Accepted)
	// Duplicate: the trigger has a delivery already.
	Duplicate = Disposition(store.Duplicate)
	// Late: the trigger waits no more.
	Late = Disposition(store.Late)
	// Parked: the delivery matches nothing yet; it is kept for 7 days.
	Parked = Disposition(store.Parked)
)

// Receipt is the outcome of a delivery.
type Receipt struct {
	Disposition Disposition
	// Trigger is the first trigger that the delivery is for; its fields are empty if there is none.
	Trigger TriggerRef
	// Accepted are all triggers that have accepted the delivery.
	Accepted []TriggerRef
	// Earlier is the delivery that counts, if the trigger had one before this; its Disposition is empty
	// if it had none.
	Earlier Delivered
	// Overdue is the deadline that a late delivery has missed, if it is late for that.
	Overdue time.Time
}

// TriggerRef names a trigger.
type TriggerRef struct{ TriggerID, RunID, RolloutID string }

// RunIDs are the runs that have accepted the delivery.
func (r Receipt) RunIDs() (ids []string) {
	for _, t := range r.Accepted {
		if !slices.Contains(ids, t.RunID) {
			ids = append(ids, t.RunID)
		}
	}
	return ids
}

// PolledError says that a delivery was refused because evalrun asks the trigger's source itself.
type PolledError struct {
	// Source is the source that evalrun asks. The trigger's fields are empty if the delivery was
	// addressed by item key.
	Source, TriggerID, RunID, Type, ItemKey string
}

func (e *PolledError) Error() string {
	if e.TriggerID == "" {
		return fmt.Sprintf("evalrun asks the source %s for the results of its jobs", e.Source)
	}
	return fmt.Sprintf("trigger %s waits for %s %s, for whose result evalrun asks the source %s", e.TriggerID, e.Type,
		redact.Line(e.ItemKey), e.Source)
}

// Deliver delivers to a trigger. It is named by its id, by a beginning or an end of it that no
// other has, or by SOURCE/KEY; the latter delivers to every trigger that waits for these. Go on
// with Resume, unless an executor runs.
func (s *Store) Deliver(ctx context.Context, name string, d Delivery) (Receipt, error) {
	one := d.stored()
	if err := (address{s.st, d.Force || d.ByJob}).set(ctx, name, &one); err != nil {
		return Receipt{}, err
	}
	if one.Status == store.StatusSuccessful {
		if err := checkAnswer(ctx, s.st, one); err != nil {
			return Receipt{}, err
		}
	}
	stored, err := s.st.Deliver(ctx, one)
	if err != nil {
		return Receipt{}, err
	}
	receipt := newReceipt(stored)
	for _, runID := range receipt.RunIDs() {
		s.Wake(runID)
		if one.Status == store.StatusSuccessful {
			continue
		}
		if err := s.afterFailure(ctx, runID); err != nil {
			return receipt, err
		}
	}
	return receipt, nil
}

func (d Delivery) stored() store.Delivery {
	out := store.Delivery{Status: store.StatusSuccessful, Payload: d.Payload, By: d.By, Person: d.Person, ByJob: d.ByJob}
	switch {
	case d.Failed:
		out.Status, out.Fault = store.StatusFaulted, fault.New("job", d.Message)
	case d.Cancelled:
		out.Status = store.StatusCancelled
	}
	return out
}

func newReceipt(r store.Receipt) Receipt {
	ref := func(t store.Trigger) TriggerRef { return TriggerRef{t.ID, t.RunID, t.RolloutID} }
	out := Receipt{Disposition: Disposition(r.Disposition), Trigger: ref(r.Trigger)}
	for _, t := range r.Accepted {
		out.Accepted = append(out.Accepted, ref(t))
	}
	if t := r.Trigger; r.Disposition == store.Duplicate {
		out.Earlier = Delivered{Disposition: Accepted, Status: string(t.Status), By: t.DeliveredBy, Person: t.Person,
			ReceivedAt: t.DeliveredAt, Payload: t.Payload}
	}
	if t := r.Trigger; r.Disposition == store.Late && (t.State.IsOpen() || t.State == store.TriggerExpired) {
		out.Overdue = t.Deadline
	}
	return out
}

// address finds the triggers that a delivery is for. With force it allows triggers whose source
// evalrun asks itself.
type address struct {
	st    store.Reader
	force bool
}

// set addresses a delivery by the name that its caller gives.
func (a address) set(ctx context.Context, name string, d *store.Delivery) error {
	if source, key, ok := strings.Cut(name, "/"); ok {
		if key == "" || !slices.Contains(wait.SourceNames(), source) {
			return inputError("%q: expected SOURCE/KEY, the source one of %s%s", name, strings.Join(wait.SourceNames(), ", "),
				input.Suggest(source, wait.SourceNames()))
		}
		if !a.force && wait.IsPolled(source) {
			return &InputError{Err: &PolledError{Source: source}}
		}
		d.Source, d.ItemKey = source, key
		return nil
	}
	if _, isLatest, _ := stepsBack(name); isLatest {
		return inputError("%s: a trigger is named by its id, because the newest one may be another than the one that you have seen; evalrun triggers lists them",
			name)
	}
	t, err := a.st.Trigger(ctx, name)
	switch {
	case err == nil && !a.force && t.State.IsOpen() && wait.IsPolled(t.Source):
		return &InputError{Err: &PolledError{Source: t.Source, TriggerID: t.ID, RunID: t.RunID, Type: t.Type,
			ItemKey: t.ItemKey}}
	case err == nil:
		d.TriggerID = t.ID
	case !errors.Is(err, store.ErrNotFound):
		return err
	case !a.mayBeTrigger(ctx, name):
		return inputError("%w; evalrun triggers lists them", err)
	default:
		d.TriggerID = name // it may still come
	}
	return nil
}

// mayBeTrigger reports whether a name may become the id of a trigger: such an id can be derived
// from its rollout's.
func (a address) mayBeTrigger(ctx context.Context, name string) bool {
	id, err := uuid.Parse(name)
	if err != nil || id.String() != name || id.Version() != 5 {
		return false
	}
	_, err = a.st.RunOf(ctx, name)
	return errors.Is(err, store.ErrNotFound)
}

// afterFailure brings the results document up to date. A failure that its agent cannot handle may
// have ended a rollout, or the run.
func (s *Store) afterFailure(ctx context.Context, runID string) error {
	run, err := s.st.Run(ctx, runID)
	if err != nil {
		return err
	}
	if run.Final() {
		return s.settle(ctx, runID, 0)
	}
	p, err := readPlanned(ctx, s.st, runID, Variables{})
	if err != nil {
		return err
	}
	return p.save(ctx)
}
