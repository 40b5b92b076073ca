package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/service"
	"github.com/evalrun/evalrun/runner"
	"github.com/evalrun/evalrun/schemas"
)

const resultsDescription = `Read the results of a run: the summary first, then the rollouts that failed, then the others, page by page. ` +
	`With waitSeconds it first waits so long for the end of the run.`

const resultsSchema = `{"type":"object","additionalProperties":false,"required":["runId"],"properties":{` +
	`"runId":{"type":"string"},` +
	`"cursor":{"description":"nextCursor of the page before","type":"string"},` +
	`"limit":{"description":"how many rollouts a page has; 20 if left out","type":"integer","minimum":1,"maximum":200},` +
	`"waitSeconds":{"type":"integer","minimum":0}}}`

const (
	defaultPage = 20
	largestPage = 200
	// maxOutput is how much is shown of what an agent has put out, in bytes.
	maxOutput = 4000
)

// results are a page of the results of a run.
type results struct {
	RunID             string          `json:"runId"`
	EvaluationSetName string          `json:"evaluationSetName"`
	Status            schemas.Status  `json:"status"`
	Final             bool            `json:"final"`
	Summary           schemas.Summary `json:"summary"`
	// Verdict is what the gates say, and Reason why; the first page has them.
	Verdict string `json:"verdict,omitempty"`
	Reason  string `json:"reason,omitempty"`
	// Error is why the run's job has failed, in the result of a task.
	Error string `json:"error,omitempty"`
	// Failed are rollouts that have faulted or whose score does not pass, Others the rest.
	Failed []rolloutResult `json:"failed"`
	Others []rolloutResult `json:"others,omitempty"`
	// NextCursor is for the rollouts that are not on the page.
	NextCursor string `json:"nextCursor,omitempty"`
	// ComeBack says what to do if the run is not final.
	ComeBack string `json:"comeBack,omitempty"`
}

// rolloutResult is what came of a rollout.
type rolloutResult struct {
	RolloutID      string           `json:"rolloutId"`
	EvaluationID   string           `json:"evaluationId"`
	EvaluationName string           `json:"evaluationName"`
	Agent          string           `json:"agent"`
	Epoch          int              `json:"epoch"`
	Status         schemas.State    `json:"status"`
	Score          *float64         `json:"score"`
	Error          *schemas.Fault   `json:"error,omitempty"`
	Evaluators     []evaluatorScore `json:"evaluators,omitempty"`
	// Output is what the agent has put out; OutputBytes says how long it is if it is left out.
	Output      json.RawMessage `json:"output,omitempty"`
	OutputBytes int             `json:"outputBytes,omitempty"`
}

// evaluatorScore is what one evaluator said.
type evaluatorScore struct {
	Name   string   `json:"name"`
	Score  *float64 `json:"score"`
	Error  string   `json:"error,omitempty"`
	NotRun string   `json:"notRun,omitempty"`
}

func newRolloutResult(one *schemas.Rollout) rolloutResult {
	out := rolloutResult{RolloutID: one.RolloutID, EvaluationID: one.EvaluationID, EvaluationName: one.EvaluationName, Agent: one.Agent,
		Epoch: one.Epoch, Status: one.Status, Score: one.Score, Error: one.Error}
	for _, e := range one.EvaluationRunResults {
		out.Evaluators = append(out.Evaluators, evaluatorScore{e.EvaluatorName, e.Result.Score, e.Result.Error, e.Result.NotRun})
	}
	if done := one.AgentExecutionOutput; done != nil && one.Status != schemas.StateSuspended && !jsonobj.IsNull(done.Result.Output) {
		if out.Output = done.Result.Output; len(out.Output) > maxOutput {
			out.Output, out.OutputBytes = nil, len(out.Output)
		}
	}
	return out
}

// position is where a page begins: those that failed come first, in the order of the plan.
type position struct {
	others bool
	index  int
}

func (p position) String() string {
	if p.others {
		return "others-" + strconv.Itoa(p.index)
	}
	return "failed-" + strconv.Itoa(p.index)
}

func parsePosition(cursor string) (p position, err error) {
	for _, p.others = range []bool{false, true} {
		if _, err = fmt.Sscanf(cursor, position{others: p.others}.String()[:7]+"%d", &p.index); err == nil && p.index >= 0 && p.String() == cursor {
			return p, nil
		}
	}
	return p, &argumentError{"cursor: expected the nextCursor of a page, got " + string(jsonobj.Quote(cursor))}
}

// resultsArguments are those of get_results.
type resultsArguments struct {
	RunID       string `json:"runId"`
	Cursor      string `json:"cursor"`
	Limit       int    `json:"limit"`
	WaitSeconds *int   `json:"waitSeconds"`
}

// getResults is the tool.
func (s *Server) getResults(ctx context.Context, q *request, arguments json.RawMessage) (any, error) {
	var a resultsArguments
	if err := errors.Join(read(arguments, &a), checkWait(a.WaitSeconds)); err != nil {
		return nil, err
	}
	limit, err := pageLimit(a.Limit)
	if err != nil {
		return nil, err
	}
	var from position
	if a.Cursor != "" {
		if from, err = parsePosition(a.Cursor); err != nil {
			return nil, err
		}
	}
	if a.WaitSeconds != nil {
		if err := s.await(ctx, q, a.RunID, time.Duration(*a.WaitSeconds)*time.Second); err != nil {
			return nil, unknownRun(a.RunID, err)
		}
	}
	page, err := s.page(context.WithoutCancel(ctx), a.RunID, from, limit)
	return page, unknownRun(a.RunID, err)
}

func pageLimit(asked int) (int, error) {
	switch {
	case asked == 0:
		return defaultPage, nil
	case asked < 0 || asked > largestPage:
		return 0, &argumentError{fmt.Sprintf("limit: expected 1 to %d, got %d", largestPage, asked)}
	}
	return asked, nil
}

// page reads a page of the results of a run.
func (s *Server) page(ctx context.Context, runID string, from position, limit int) (out results, err error) {
	var judged service.Summary
	if from == (position{}) {
		if judged, err = s.o.Service.Summary(ctx, runID); err != nil {
			return out, err
		}
	}
	err = s.o.Service.Report(ctx, runID, func(r *runner.Report) error {
		head := r.Head()
		out = results{RunID: head.RunID, EvaluationSetName: head.EvaluationSetName, Status: head.Status, Final: head.Final, Summary: head.Summary,
			Verdict: judged.Verdict, Reason: judged.Reason, Failed: []rolloutResult{}}
		var next *position
		for ; next == nil; from = (position{others: true}) {
			if next, err = out.add(r, from, limit); err != nil || from.others {
				break
			}
		}
		if next != nil {
			out.NextCursor = next.String()
		}
		return err
	})
	if !out.Final {
		out.ComeBack = "the run goes on; call get_results with runId " + out.RunID + " and waitSeconds to wait for its end"
		if out.Status == schemas.Suspended {
			out.ComeBack = "the run is suspended, possibly for long; list_triggers says what it waits for, and get_results with runId " + out.RunID + " how it is"
		}
	}
	return out, err
}

// add adds the rollouts that failed from a place on, or the others, as long as there is room. next
// is that of the first for which there was none.
func (out *results) add(r *runner.Report, from position, limit int) (next *position, err error) {
	index := -1
	err = r.Rollouts(func(one *schemas.Rollout) error {
		if index++; index < from.index || r.Failed(one) == from.others || next != nil {
			return nil
		}
		switch {
		case len(out.Failed)+len(out.Others) >= limit:
			next = &position{from.others, index}
		case from.others:
			out.Others = append(out.Others, newRolloutResult(one))
		default:
			out.Failed = append(out.Failed, newRolloutResult(one))
		}
		return nil
	})
	return next, err
}
