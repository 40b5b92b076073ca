package report

import (
	"encoding/json"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/engine"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/plans"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/internal/workspace"
)

// Options are what a report needs beside a view of the run.
type Options struct {
	// StoreID and StoreDir are those of the view's store. StorePath is how the document says where the store is.
	StoreID   string
	StoreDir  string
	StorePath string
	// Plan is the run's.
	Plan plans.Plan
	// Redact takes secrets out of what agents, evaluators and triggers said.
	Redact *redact.Redactor
}

// FromView makes the report of a view, and computes its statistics. It holds as long as the view does.
func FromView(v store.View, o Options) (*Report, error) {
	run := v.Run()
	evaluations, err := evaluationsOf(v)
	if err != nil {
		return nil, err
	}
	set := &o.Plan.Set
	statistics := eval.NewStatistics(set)
	if err := v.Rollouts(func(rv store.RolloutView) error {
		results, err := evaluated(rv)
		statistics.Add(eval.Rollout{EvaluationID: rv.EvaluationID, Agent: rv.Agent, Epoch: rv.Epoch, State: eval.State(rv.State),
			AgentsFault: rv.State == store.StateFaulted && rv.Fault != nil && ownerOf(set, rv.Fault.Category) == fault.OwnerAgent,
			Evaluation:  evaluations[rv.EvaluationID], Results: results})
		return err
	}); err != nil {
		return nil, err
	}
	summary := statistics.Summary()
	o.redactNames(&summary)
	r := &Report{Head: o.head(run), Dataset: summary.Dataset, Pass: set.Thresholds.Pass}
	r.Summary, r.Statistics = summaryOf(run.Counts, &summary), &summary
	r.each = func(p parts, f func(*Rollout) error) error {
		return v.Rollouts(func(rv store.RolloutView) error {
			out, err := o.rollout(rv, evaluations[rv.EvaluationID], p)
			if err != nil {
				return fmt.Errorf("rollout %s (%s): %w", rv.ID, rv.EvaluationName, err)
			}
			return f(out)
		})
	}
	return r, nil
}

// redactNames takes secrets out of the names and ids in the statistics.
func (o Options) redactNames(s *eval.Summary) {
	clean := func(texts ...*string) {
		for _, text := range texts {
			*text = o.Redact.String(*text)
		}
	}
	all := []*eval.AgentSummary{&s.AgentSummary}
	for i := range s.Agents {
		all = append(all, &s.Agents[i])
	}
	for _, a := range all {
		clean(&a.Agent)
		for i := range a.Evaluators {
			clean(&a.Evaluators[i].Name)
		}
		for i := range a.Flaky {
			clean(&a.Flaky[i].EvaluationID)
		}
		for _, ids := range [][]string{a.AlwaysPass, a.NeverPass} {
			for i := range ids {
				clean(&ids[i])
			}
		}
	}
	for i := range s.Gates {
		clean(&s.Gates[i].Agent)
	}
	dataset := make(map[string]eval.DatasetResult, len(s.Dataset))
	for key, result := range s.Dataset { // a key has the names of evaluator and agent
		dataset[o.Redact.String(key)] = result
	}
	s.Dataset = dataset
}

// redacted takes secrets out of each of several texts.
func (o Options) redacted(texts []string) (out []string) {
	for _, text := range texts {
		out = append(out, o.Redact.String(text))
	}
	return out
}

// head says what the run is and where it comes from.
func (o Options) head(run store.Run) Head {
	origin, set := o.Plan.Origin, &o.Plan.Set
	h := Head{
		SchemaVersion: schemaVersion, RunID: run.ID, StoreID: o.StoreID, StorePath: filepath.ToSlash(o.StorePath), Revision: run.Revision, Final: run.Final(),
		EvaluationSetID: run.EvaluationSetID, EvaluationSetName: o.Redact.String(run.EvaluationSetName), EvaluationSetDigest: set.Digest,
		EvalIDs: o.redacted(origin.EvalIDs), Filter: o.Redact.String(origin.Filter), RetryOf: run.RetryOf, PlanDigest: o.Plan.Digest,
		GitCommit: origin.GitCommit, Version: origin.Version, StartedAt: timeOrNil(run.CreatedAt), FinishedAt: timeOrNil(run.FinishedAt), Status: StatusOf(run.Counts),
	}
	if set.Digest != "" {
		h.EvaluationSetPath = o.Redact.String(path.Join(h.StorePath, o.Plan.BaseDir, path.Base(filepath.ToSlash(set.Path))))
	}
	for _, a := range o.Plan.Agents {
		one := AgentHead{Name: o.Redact.String(a.Name), Type: a.Type, Command: o.redacted(a.Command)}
		if a.ACP != nil && a.Model != nil {
			one.Model = o.Redact.String(a.Model.Name)
		}
		h.Agents = append(h.Agents, one)
	}
	return h
}

// evaluationsOf reads the evaluations of the plan, by id.
func evaluationsOf(v store.View) (map[string]*eval.Evaluation, error) {
	out := map[string]*eval.Evaluation{}
	err := v.Evaluations(func(e store.Evaluation) error {
		one := new(eval.Evaluation)
		out[e.ID] = one
		if err := json.Unmarshal(e.Data, one); err != nil {
			return fmt.Errorf("the stored evaluation %s: %w", e.ID, err)
		}
		return nil
	})
	return out, err
}

// ownerOf says whose a fault is: what the eval set says of its category, else what is usual.
func ownerOf(set *eval.Set, category fault.Category) fault.Owner {
	if owner, ok := set.Faults[string(category)]; ok {
		return fault.Owner(owner)
	}
	return category.Owner()
}

// summaryOf is the short form of the statistics.
func summaryOf(c store.Counts, s *eval.Summary) Summary {
	out := Summary{Total: c.Total, Completed: c.Completed, Suspended: c.Suspended, Faulted: c.Faulted,
		Score: s.Score.Mean, ScoreOf: scoreWithFaulted, ScoreCompleted: s.ScoreCompleted.Mean}
	for _, a := range s.Agents {
		out.Agents = append(out.Agents, AgentScore{a.Agent, a.Score.Mean, a.ScoreCompleted.Mean})
	}
	return out
}

// evaluated are the results of a completed rollout. Those of one that is still being evaluated are not shown.
func evaluated(rv store.RolloutView) ([]eval.Result, error) {
	if rv.State != store.StateCompleted {
		return nil, nil
	}
	var all []eval.Result
	for _, r := range rv.Results {
		var results []eval.Result
		if err := json.Unmarshal(r.Data, &results); err != nil {
			return nil, fmt.Errorf("the stored result of evaluator %s: %w", r.EvaluatorID, err)
		}
		all = append(all, results...)
	}
	return all, nil
}

func (o Options) rollout(rv store.RolloutView, evaluation *eval.Evaluation, p parts) (*Rollout, error) {
	out := &Rollout{
		EvaluationID: o.Redact.String(rv.EvaluationID), EvaluationName: o.Redact.String(rv.EvaluationName), RolloutID: rv.ID,
		Agent: o.Redact.String(rv.Agent), Epoch: rv.Epoch, Status: rv.State, Score: rv.Score, Error: o.fault(rv.Fault),
		ResumedBy: resumptions(rv), MCPServers: []agent.ServerVerdict{}, Isolation: "none", Segments: rv.Segment,
		EvaluationRunResults: []Evaluated{}, Clocks: clocks(rv.Clocks),
	}
	if evaluation != nil {
		out.Inputs, out.ExpectedOutput, out.Tags = o.Redact.JSON(evaluation.Inputs), o.Redact.JSON(evaluation.ExpectedOutput), o.redacted(evaluation.Tags)
		out.Criteria = make(map[string]json.RawMessage, len(evaluation.Criteria))
		for id, criteria := range evaluation.Criteria {
			out.Criteria[o.Redact.String(id)] = o.Redact.JSON(criteria)
		}
	}
	results, err := evaluated(rv)
	if err != nil {
		return nil, err
	}
	for _, r := range results {
		out.EvaluationRunResults = append(out.EvaluationRunResults, o.evaluated(r))
	}
	out.Logs, out.FinishedAt = o.logs(rv), timeOrNil(rv.FinishedAt)
	if len(rv.Segments) > 0 {
		out.StartedAt = timeOrNil(rv.Segments[0].StartedAt)
	}
	if err := o.addInfo(out, rv); err != nil {
		return nil, err
	}
	out.AgentExecutionOutput, err = o.execution(rv, p)
	return out, err
}

// logs are the files of all attempts of all segments.
func (o Options) logs(rv store.RolloutView) (out []string) {
	for _, s := range rv.Segments {
		dir, err := filepath.Rel(o.StoreDir, workspace.SegmentDir(o.StoreDir, rv.RunID, rv.ID, s.Number, s.Attempt))
		if err != nil {
			continue // both are absolute
		}
		for _, f := range s.Files {
			out = append(out, path.Join(filepath.ToSlash(dir), f.Name))
		}
	}
	return out
}

// addInfo adds what the segments report of agents that live in an environment. Of attempts that were repeated nothing counts but the tokens.
func (o Options) addInfo(out *Rollout, rv store.RolloutView) error {
	for _, s := range rv.Segments {
		if s.Info == nil {
			continue
		}
		var info agent.Info
		if err := json.Unmarshal(o.Redact.JSON(s.Info), &info); err != nil {
			return fmt.Errorf("what segment %d reports: %w", s.Number, err)
		}
		out.Isolation, out.Environment, out.AgentVersion, out.Steps = info.Isolation, info.Environment, info.AgentVersion, info.Steps
		out.Limit = nil
		if info.Limit != nil {
			out.Limit = fault.New(info.Limit.Category, info.Limit.Message)
		}
		if info.MCPServers != nil {
			out.MCPServers = addCalls(info.MCPServers, out.MCPServers)
		}
		if info.Model != nil || info.AgentUsage != nil || info.ToolCalls > 0 {
			if out.Usage == nil {
				out.Usage = &Usage{}
			}
			out.Usage.add(info)
		}
		for i := range out.ResumedBy {
			if out.ResumedBy[i].Segment == s.Number {
				out.ResumedBy[i].Session, out.ResumedBy[i].Note = info.ResumedBy, info.ResumeNote
			}
		}
	}
	return nil
}

// addCalls adds to the servers of a segment the calls of the segments before.
func addCalls(servers, before []agent.ServerVerdict) []agent.ServerVerdict {
	for i := range servers {
		for _, b := range before {
			if b.Name == servers[i].Name {
				servers[i].Calls += b.Calls
				servers[i].Held += b.Held
			}
		}
	}
	return servers
}

func (u *Usage) add(info agent.Info) {
	u.ToolCalls += info.ToolCalls
	if info.AgentUsage != nil {
		u.Agent = info.AgentUsage
	}
	if info.Model != nil {
		sum := *info.Model
		if u.Model != nil {
			sum = u.Model.Plus(sum)
		}
		u.Model = &sum
	}
}

func (o Options) fault(f *fault.Fault) *fault.Fault {
	if f == nil {
		return nil
	}
	return fault.New(f.Category, o.Redact.String(f.Message))
}

func (o Options) evaluated(r eval.Result) Evaluated {
	out := EvaluationResult{Score: r.Score, Details: o.Redact.JSON(r.Details), EvaluationTime: r.Duration.Seconds(), Error: o.Redact.String(r.Error), NotRun: o.Redact.String(r.NotRun)}
	if string(out.Details) == "null" {
		out.Details = nil
	}
	if r.Scale != 1 {
		out.Scale = r.Scale
	}
	return Evaluated{EvaluatorName: o.Redact.String(r.EvaluatorName), EvaluatorID: r.EvaluatorID, Result: out, IsLineResult: r.Line}
}

// resumptions are the segments that took deliveries, in order.
func resumptions(rv store.RolloutView) []Resumption {
	out := []Resumption{}
	for segment := 2; segment <= rv.Segment; segment++ {
		r := Resumption{Segment: segment, TriggerIDs: []string{}}
		for _, t := range rv.Triggers {
			if t.TakenBy == segment {
				r.TriggerIDs = append(r.TriggerIDs, t.ID)
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
		if r.At == nil && rv.State == store.StateRunning && rv.Segment == segment && rv.Attempt == 1 {
			r.At = timeOrNil(rv.StateSince)
		}
		out = append(out, r)
	}
	return out
}

// execution is what the agent did; nil as long as it may be at it.
func (o Options) execution(rv store.RolloutView, p parts) (out *AgentExecution, err error) {
	x := &AgentExecution{ExecutionTime: rv.Clocks.Working.Seconds(), Trace: Trace{[]json.RawMessage{}}}
	x.Result = ExecutionResult{Output: json.RawMessage("{}"), Triggers: []Trigger{}}
	switch rv.State {
	case store.StateSuspended:
		x.Result.Status = string(Suspended)
		if x.Result.Triggers, err = o.waiting(rv.Triggers); err != nil {
			return nil, err
		}
		if len(x.Result.Triggers) > 0 {
			x.Result.Trigger = &x.Result.Triggers[0]
		}
	case store.StateEvaluating, store.StateCompleted:
		x.Result.Status = string(Successful)
		for _, s := range rv.Segments {
			if s.Outcome == store.OutcomeCompleted {
				x.Result.Output = o.Redact.JSON(s.Output)
			}
		}
	case store.StateFaulted:
		x.Result.Status, x.Result.Error = string(Faulted), o.fault(rv.Fault)
	case store.StateCancelled:
		if len(rv.Segments) == 0 {
			return nil, nil
		}
		x.Result.Status, x.Result.Error = string(Faulted), fault.New("cancelled", "the rollout was cancelled")
	default:
		return nil, nil
	}
	if p.spans {
		x.Trace.Spans, err = o.spans(rv)
	}
	return x, err
}

// waiting are the triggers of the current suspension.
func (o Options) waiting(triggers []store.Trigger) ([]Trigger, error) {
	out := []Trigger{}
	for _, t := range triggers {
		if t.TakenBy != 0 || slices.Contains([]store.TriggerState{store.TriggerConsumed, store.TriggerSuperseded, store.TriggerAbandoned}, t.State) {
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
		shown := Trigger{
			TriggerID: t.ID, InterruptID: o.Redact.String(t.InterruptID), Type: t.Type, Name: t.Name, ItemKey: o.Redact.String(t.ItemKey),
			FolderPath: nullable(o.Redact.String(t.FolderPath)), FolderKey: o.Redact.String(t.FolderKey), Payload: o.Redact.JSON(payload),
			Deadline: timeOrNil(t.Deadline),
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

// spans are those of the attempts that counted, and of the one that a rollout faulted or was cancelled with. Files that were moved
// away are no error.
func (o Options) spans(rv store.RolloutView) ([]json.RawMessage, error) {
	out := []json.RawMessage{}
	for i, s := range rv.Segments {
		last := rv.State.IsTerminal() && i == len(rv.Segments)-1
		if s.Outcome != store.OutcomeCompleted && s.Outcome != store.OutcomeSuspended && !last {
			continue
		}
		for _, dir := range engine.TraceDirs(workspace.SegmentDir(o.StoreDir, rv.RunID, rv.ID, s.Number, s.Attempt), s.Files) {
			spans, _, err := agent.ReadTrace(dir)
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

func clocks(c store.Clocks) Clocks {
	out := Clocks{WorkingMs: c.Working.Milliseconds(), WaitingMs: c.Waiting.Milliseconds(), QueuedMs: c.Queued.Milliseconds(), EvaluatingMs: c.Evaluating.Milliseconds()}
	out.WallMs = out.WorkingMs + out.WaitingMs + out.QueuedMs + out.EvaluatingMs
	return out
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
