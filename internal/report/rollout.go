package report

import (
	"encoding/json"
	"fmt"
	"path"
	"path/filepath"
	"slices"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/files"
	"github.com/evalrun/evalrun/internal/record"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/taskcache"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/schemas"
)

func (o Options) rollout(rv store.RolloutView, results []result, p parts) (out *schemas.Rollout, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("rollout %s (%s): %w", rv.ID, rv.EvaluationName, err)
		}
	}()
	evaluation, err := readEvaluation(rv.EvaluationID, rv.Evaluation)
	if err != nil {
		return nil, err
	}
	out = &schemas.Rollout{
		EvaluationID: o.Redact.String(rv.EvaluationID), EvaluationName: o.Redact.String(rv.EvaluationName), RolloutID: rv.ID,
		Agent: o.Redact.String(rv.Agent), Epoch: rv.Epoch, Status: schemas.State(rv.State),
		Score: rv.Score, Error: o.fault(rv.Fault),
		ResumedBy: o.resumptions(rv), MCPServers: []schemas.MCPServer{}, Isolation: "none", Segments: rv.Segment,
		EvaluationRunResults: []schemas.Evaluated{}, Clocks: clocks(rv.Clocks),
	}
	if out.Error != nil {
		out.FaultOwner = string(ownerOf(&o.Plan.Set, rv.Fault.Category))
	}
	if evaluation != nil {
		out.TaskSource = o.taskSource(evaluation)
		if evaluation.Task != nil {
			out.TaskDigest = evaluation.Task.Digest
		}
		out.Cluster = o.Redact.String(evaluation.Cluster)
		out.Inputs, out.ExpectedOutput, out.Tags = o.Redact.JSON(evaluation.Inputs),
			o.Redact.JSON(evaluation.ExpectedOutput), o.redacted(evaluation.Tags)
		out.Metadata = o.Redact.JSON(evaluation.Metadata)
		out.Criteria = make(map[string]json.RawMessage, len(evaluation.Criteria))
		for id, criteria := range evaluation.Criteria {
			out.Criteria[o.Redact.String(id)] = o.Redact.JSON(criteria)
		}
	}
	for _, r := range results {
		one := o.evaluated(r.Result)
		one.Rescoring = r.rescoring
		out.EvaluationRunResults = append(out.EvaluationRunResults, one)
	}
	out.Rescoring, out.Outdated, out.NotRescored = rv.Rescoring, o.outdated(rv), o.Redact.String(rv.Unscored)
	out.Logs, out.FinishedAt = o.logs(rv), timeOrNil(rv.FinishedAt)
	if len(rv.Segments) > 0 {
		out.StartedAt = timeOrNil(rv.Segments[0].StartedAt)
	}
	if err := o.addInfo(out, rv); err != nil {
		return nil, err
	}
	if rv.State == eval.StateScoring {
		if out.EvaluatorTriggers, err = o.waiting(rv.Triggers, true); err != nil {
			return nil, err
		}
	}
	out.AgentExecutionOutput, err = o.execution(rv, p)
	return out, err
}

// segmentDir is the folder of one attempt of a segment.
func (o Options) segmentDir(rv store.RolloutView, s store.Segment) string {
	return files.Store(o.StoreDir).Run(rv.RunID).Rollout(rv.ID).Segment(s.Number, s.Attempt)
}

// logs returns the files of all attempts of all segments.
func (o Options) logs(rv store.RolloutView) (out []string) {
	for _, s := range rv.Segments {
		dir, err := filepath.Rel(o.StoreDir, o.segmentDir(rv, s))
		if err != nil {
			continue // both are absolute
		}
		for _, f := range s.Files {
			out = append(out, path.Join(filepath.ToSlash(dir), f.Name))
		}
	}
	return out
}

func (o Options) fault(f *fault.Fault) *schemas.Fault {
	if f == nil {
		return nil
	}
	return &schemas.Fault{Category: string(f.Category), Message: o.Redact.String(f.Message)}
}

func (o Options) evaluated(r eval.Result) schemas.Evaluated {
	out := schemas.EvaluationResult{
		Score: r.Score, Details: o.Redact.JSON(r.Details), EvaluationTime: r.Duration.Seconds(),
		Error: o.Redact.String(r.Error), NotRun: o.Redact.String(r.NotRun),
		ErrorCategory: r.ErrorCategory, Judge: r.Judge, StartedAt: timeOrNil(r.StartedAt),
	}
	if string(out.Details) == "null" {
		out.Details = nil
	}
	for _, one := range r.Ratings {
		out.Ratings = append(out.Ratings, schemas.Rating{
			Rater: o.Redact.String(one.Rater), Score: one.Score, Label: o.Redact.String(one.Label),
			Justification: o.Redact.String(one.Justification), At: one.At,
		})
	}
	if r.Scale != 1 {
		out.Scale = r.Scale
	}
	if c := r.Comparison; c != nil {
		out.Comparison = &eval.Comparison{Expected: o.Redact.JSON(c.Expected),
			Actual: o.Redact.JSON(c.Actual), Relation: c.Relation}
	}
	return schemas.Evaluated{EvaluatorName: o.Redact.String(r.EvaluatorName), EvaluatorID: r.EvaluatorID,
		Result: out, IsLineResult: r.Line}
}

// resumptions lists the segments that took deliveries, in order.
func (o Options) resumptions(rv store.RolloutView) []schemas.Resumption {
	out := []schemas.Resumption{}
	for segment := 2; segment <= rv.Segment; segment++ {
		r := schemas.Resumption{Segment: segment, TriggerIDs: []string{}}
		for _, t := range rv.Triggers {
			if t.TakenBy == segment {
				r.TriggerIDs = append(r.TriggerIDs, t.ID)
				r.Answers = append(r.Answers, schemas.Answer{
					TriggerID: t.ID, Status: string(t.Status), By: o.Redact.String(t.DeliveredBy),
					Person: o.Redact.String(t.Person), At: t.DeliveredAt, CheckedAt: timeOrNil(t.CheckedAt),
					Played: o.Redact.String(playedPlace(t)),
				})
			}
		}
		if len(r.TriggerIDs) == 0 {
			continue
		}
		for _, s := range slices.Backward(rv.Segments) {
			if s.Number == segment {
				r.At = timeOrNil(s.StartedAt)
			}
		}
		if r.At == nil && rv.State == eval.StateRunning && rv.Segment == segment && rv.Attempt == 1 {
			r.At = timeOrNil(rv.StateSince)
		}
		out = append(out, r)
	}
	return out
}

// execution says what the agent did. It is nil while the agent may still be working.
func (o Options) execution(rv store.RolloutView, p parts) (out *schemas.AgentExecution, err error) {
	x := &schemas.AgentExecution{ExecutionTime: rv.Clocks.Working.Seconds(),
		Trace: schemas.Trace{Spans: []json.RawMessage{}}}
	x.Result = schemas.ExecutionResult{Output: json.RawMessage("{}"), Triggers: []schemas.Trigger{}}
	switch rv.State {
	case eval.StateSuspended:
		x.Result.Status = schemas.Suspended
		if x.Result.Triggers, err = o.waiting(rv.Triggers, false); err != nil {
			return nil, err
		}
		if len(x.Result.Triggers) > 0 {
			x.Result.Trigger = &x.Result.Triggers[0]
		}
	case eval.StateEvaluating, eval.StateScoring, eval.StateCompleted:
		x.Result.Status = schemas.Successful
		for _, s := range rv.Segments {
			if s.Outcome == store.OutcomeCompleted {
				x.Result.Output = o.Redact.JSON(s.Output)
			}
		}
	case eval.StateFaulted:
		x.Result.Status, x.Result.Error = schemas.Faulted, o.fault(rv.Fault)
	case eval.StateCancelled:
		if len(rv.Segments) == 0 {
			return nil, nil
		}
		x.Result.Status, x.Result.Error = schemas.Faulted,
			&schemas.Fault{Category: "cancelled", Message: "the rollout was cancelled"}
	default:
		return nil, nil
	}
	if p.spans {
		x.Trace.Spans, err = o.spans(rv)
	}
	return x, err
}

// waiting returns the triggers of the current suspension, or those of the evaluators.
func (o Options) waiting(triggers []store.Trigger, evaluators bool) ([]schemas.Trigger, error) {
	out := []schemas.Trigger{}
	for _, t := range triggers {
		if (t.EvaluatorID != "") != evaluators || t.TakenBy != 0 || slices.Contains([]store.TriggerState{
			store.TriggerConsumed, store.TriggerSuperseded, store.TriggerAbandoned,
		}, t.State) {
			continue
		}
		var spec wait.Spec
		if err := json.Unmarshal(t.Spec, &spec); err != nil {
			return nil, fmt.Errorf("the stored spec of trigger %s: %w", t.ID, err)
		}
		payload := spec.Visible()
		if payload == nil {
			payload = json.RawMessage("null")
		}
		shown := schemas.Trigger{
			TriggerID: t.ID, InterruptID: o.Redact.String(t.ShownID()),
			Type: t.Type, Name: t.Name, ItemKey: o.Redact.String(t.ItemKey),
			FolderKey: o.Redact.String(t.FolderKey), Payload: o.Redact.JSON(payload),
			Deadline: timeOrNil(t.Deadline), Failures: t.Failures, LastError: o.Redact.String(t.LastError),
			CheckedAt: timeOrNil(t.CheckedAt),
		}
		if spec.Played != nil {
			shown.Played = o.Redact.String(spec.Played.Place)
		}
		if evaluators {
			shown.Purpose, shown.EvaluatorID = schemas.PurposeEvaluator, o.Redact.String(t.EvaluatorID)
		}
		if path := o.Redact.String(t.FolderPath); path != "" {
			shown.FolderPath = &path
		}
		if spec.ResumeAt != nil {
			shown.ResumeTime = timeOrNil(*spec.ResumeAt)
		}
		if spec.ExpiresAt != nil {
			shown.ExpiresAt = timeOrNil(*spec.ExpiresAt)
		}
		out = append(out, shown)
	}
	return out, nil
}

// spans returns the spans of the attempts that counted, and of the last attempt of a rollout that
// faulted or was cancelled. A file that is missing is not an error.
func (o Options) spans(rv store.RolloutView) ([]json.RawMessage, error) {
	out := []json.RawMessage{}
	for i, s := range rv.Segments {
		last := rv.State.IsTerminal() && i == len(rv.Segments)-1
		if s.Outcome != store.OutcomeCompleted && s.Outcome != store.OutcomeSuspended && !last {
			continue
		}
		for _, dir := range record.TraceDirs(o.segmentDir(rv, s), s.Files) {
			spans, _, err := record.ReadTrace(dir)
			if err != nil {
				return nil, err
			}
			for _, span := range spans {
				out = append(out, o.Redact.JSON(span))
			}
		}
	}
	return out, nil
}

func clocks(c store.Clocks) schemas.Clocks {
	out := schemas.Clocks{
		WorkingMs: c.Working.Milliseconds(), WaitingMs: c.Waiting.Milliseconds(), ScoringMs: c.Scoring.Milliseconds(),
		QueuedMs: c.Queued.Milliseconds(), EvaluatingMs: c.Evaluating.Milliseconds(),
	}
	out.WallMs = out.WorkingMs + out.WaitingMs + out.QueuedMs + out.EvaluatingMs
	return out
}

// taskSource says where the task of an evaluation comes from. It is nil if there is no task, or it
// is a folder that nobody has published.
func (o Options) taskSource(evaluation *eval.Evaluation) *schemas.TaskSource {
	if evaluation == nil || evaluation.Task == nil || evaluation.Task.Source == "" && !evaluation.Task.OfDataset {
		return nil
	}
	out := &schemas.TaskSource{Digest: evaluation.Task.Digest}
	if d := o.Plan.Set.TaskDataset; d != nil && evaluation.Task.OfDataset {
		out.Registry, out.Dataset, out.Version = o.Redact.String(d.Registry), o.Redact.String(d.Name),
			o.Redact.String(d.Version)
	}
	if folder, err := taskcache.Parse(evaluation.Task.Source); evaluation.Task.Source != "" && err == nil {
		out.GitURL, out.Commit, out.Path = o.Redact.String(folder.URL), folder.Commit, o.Redact.String(folder.Path)
	}
	return out
}
