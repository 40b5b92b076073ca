package report

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"time"

	"github.com/evalrun/evalrun/eval/kinds"
	"github.com/evalrun/evalrun/eval/summary"
	"github.com/evalrun/evalrun/internal/files"
	"github.com/evalrun/evalrun/internal/plans"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/schemas"
)

// Detail is everything that is known of one rollout: its entry of the results document, and when
// things happened.
type Detail struct {
	schemas.Rollout
	Row Row
	// CreatedAt is when the run was created, StateSince when the rollout came into its state.
	CreatedAt, StateSince time.Time
	Attempts              []Attempt
	Waits                 []Wait
	Folder
	// Again is the command that runs the evaluation again, empty if nobody knows it.
	Again string
	// Why says in lines why it has not passed, or what it waits for; empty if it has passed.
	Why string
	// Verifier has the last lines that the verifier of a task has printed; empty if there is none.
	Verifier []string
}

// Folder is the folder of a rollout's files.
type Folder struct {
	Name string
	// Dir is absolute. Code that opens files in it must not follow links.
	Dir string
	// Redact takes secrets out of what is read from there.
	Redact *redact.Redactor
}

// FolderOf returns the folder of a rollout of a run, or store.ErrNotFound if the run has none with
// the id.
func FolderOf(ctx context.Context, st interface {
	store.Place
	store.Listing
}, runID, rolloutID string, red *redact.Redactor) (Folder, error) {
	one, err := st.Rollout(ctx, rolloutID)
	if err == nil && (one.RunID != runID || one.ID != rolloutID) {
		err = fmt.Errorf("rollout %s: %w", rolloutID, store.ErrNotFound)
	}
	return Folder{red.String(one.EvaluationName), string(files.Of(st).Run(runID).Rollout(rolloutID)), red}, err
}

// Attempt is one attempt of one segment.
type Attempt struct {
	Segment, Attempt   int
	Outcome            string
	StartedAt, EndedAt time.Time
	Error              *schemas.Fault
	// Files are what it has left, relative to the rollout's folder, slash-separated.
	Files []File
}

// File is a file of a rollout.
type File struct {
	Path string
	// Size is in bytes.
	Size int64
}

// Wait is something that the rollout waited for, or waits for.
type Wait struct {
	TriggerID, InterruptID, EvaluatorID string
	Type, Source, ItemKey, State        string
	// Segment is the segment that ended with this wait. TakenBy is the segment that was resumed
	// with it, 0 if none was.
	Segment, TakenBy int
	Open             bool
	CreatedAt        time.Time
	// Deadline, NextDue and DeliveredAt are zero if there is none.
	Deadline, NextDue, DeliveredAt time.Time
	// Status says what was delivered: successful, faulted, cancelled or expired; empty if nothing was.
	// DeliveredBy says what delivered it, Person who answered, where that is known.
	Status, DeliveredBy, Person string
	Asked, Answered             json.RawMessage
	Error                       *schemas.Fault
	LastError                   string
	Failures                    int
	// CheckedAt is when its source was asked last; zero if never.
	CheckedAt time.Time
}

// ReadDetail reads one rollout of a run. It fails with store.ErrNotFound if the run has none with
// the id.
func ReadDetail(ctx context.Context, st store.Reader, runID, rolloutID string, red *redact.Redactor) (*Detail, error) {
	stored, err := st.Plan(ctx, runID)
	if err != nil {
		return nil, err
	}
	o := Options{StoreID: st.ID(), StoreDir: st.Dir(), StorePath: ".", Redact: red}
	if o.Plan, err = plans.Read(stored); err != nil {
		return nil, err
	}
	d := &Detail{}
	return d, st.Snapshot(ctx, runID, func(v store.View) error {
		*d = Detail{Folder: Folder{Dir: string(files.Of(st).Run(runID).Rollout(rolloutID)), Redact: red}}
		return d.read(v, o)
	})
}

func (d *Detail) read(v store.View, o Options) error {
	if err := o.readRescorings(v); err != nil {
		return err
	}
	rv, err := v.Rollout(filepath.Base(d.Dir))
	if err != nil {
		return err
	}
	results, err := readResults(rv)
	if err != nil {
		return err
	}
	one, err := o.rollout(rv, results, parts{spans: true})
	if err != nil {
		return err
	}
	r := &Report{Head: o.head(v.Run()), Pass: o.Plan.Set.Thresholds.Pass, storeDir: o.StoreDir}
	statistics := summary.New(&o.Plan.Set, kinds.All).Summary()
	r.Statistics = &statistics
	d.Rollout, d.Row, d.CreatedAt, d.StateSince = *one, r.RowOf(one), rv.CreatedAt, rv.StateSince
	d.Again, d.Why, d.Verifier = explainer{Report: r}.again(one), r.Explain(one, Showing{}), r.verifierEnd(one)
	for _, s := range rv.Segments {
		a := Attempt{Segment: s.Number, Attempt: s.Attempt, Outcome: string(s.Outcome),
			StartedAt: s.StartedAt, EndedAt: s.EndedAt, Error: o.fault(s.Fault)}
		for _, f := range s.Files {
			a.Files = append(a.Files, File{fmt.Sprintf("segments/%d.%d/%s", s.Number, s.Attempt, f.Name), f.Size})
		}
		d.Attempts = append(d.Attempts, a)
	}
	for _, t := range rv.Triggers {
		var spec wait.Spec
		if err := json.Unmarshal(t.Spec, &spec); err != nil {
			return fmt.Errorf("the stored spec of trigger %s: %w", t.ID, err)
		}
		w := Wait{
			TriggerID: t.ID, InterruptID: o.Redact.String(t.ShownID()), EvaluatorID: t.EvaluatorID,
			Type: t.Type, Source: t.Source, ItemKey: o.Redact.String(t.ItemKey),
			State: string(t.State), Open: t.State.IsOpen(), Segment: t.Segment, TakenBy: t.TakenBy,
			CreatedAt: t.CreatedAt, Deadline: t.Deadline, NextDue: t.NextDue, DeliveredAt: t.DeliveredAt,
			Status: string(t.Status), DeliveredBy: o.Redact.String(t.DeliveredBy), Person: o.Redact.String(t.Person),
			Asked: o.Redact.JSON(spec.Visible()), Answered: o.Redact.JSON(t.Payload), Error: o.fault(t.Fault),
			LastError: o.Redact.String(t.LastError), Failures: t.Failures, CheckedAt: t.CheckedAt,
		}
		d.Waits = append(d.Waits, w)
	}
	return nil
}

// Findings says, a line each, what an evaluator found that did not give its best score.
func Findings(result schemas.EvaluationResult) []string { return findings(result) }
