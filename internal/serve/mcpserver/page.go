package mcpserver

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/runner"
	"github.com/evalrun/evalrun/schemas"
)

const (
	defaultPage = 20
	largestPage = 200
	// maxOutput is how much of an agent's output is shown, in bytes.
	maxOutput = 4000
)

// resultPage is a page of the results of a run.
type resultPage struct {
	RunID             string          `json:"runId"`
	EvaluationSetName string          `json:"evaluationSetName"`
	Status            schemas.Status  `json:"status"`
	Final             bool            `json:"final"`
	Summary           schemas.Summary `json:"summary"`
	// Verdict is the verdict of the gates, and Reason explains it; only the first page has them.
	Verdict string `json:"verdict,omitempty"`
	Reason  string `json:"reason,omitempty"`
	// Error is why the run's job has failed, in the result of a task.
	Error string `json:"error,omitempty"`
	// Failed are rollouts that have faulted or whose score does not pass, Others the rest.
	Failed []rolloutResult `json:"failed"`
	Others []rolloutResult `json:"others,omitempty"`
	// NextCursor is for the rollouts that are not on the page.
	NextCursor string `json:"nextCursor,omitempty"`
	// Warnings are problems of an uploaded eval set that are not errors, for its uploader.
	Warnings []string `json:"warnings,omitempty"`
	// ComeBack is the advice for a run that is not final.
	ComeBack string `json:"comeBack,omitempty"`
}

// add adds rollouts from a position on, those that failed or the others, as long as there is room.
// next is the position of the first one without room.
func (out *resultPage) add(r *runner.Report, from position, limit int) (next *position, err error) {
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

// rolloutResult is the result of a rollout.
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
	// Output is the agent's output. If it is left out, OutputBytes is its length.
	Output      json.RawMessage `json:"output,omitempty"`
	OutputBytes int             `json:"outputBytes,omitempty"`
}

// evaluatorScore is the result of one evaluator.
type evaluatorScore struct {
	Name   string   `json:"name"`
	Score  *float64 `json:"score"`
	Error  string   `json:"error,omitempty"`
	NotRun string   `json:"notRun,omitempty"`
}

func newRolloutResult(one *schemas.Rollout) rolloutResult {
	out := rolloutResult{RolloutID: one.RolloutID, EvaluationID: one.EvaluationID, EvaluationName: one.EvaluationName,
		Agent: one.Agent,
		Epoch: one.Epoch, Status: one.Status, Score: one.Score, Error: one.Error}
	for _, e := range one.EvaluationRunResults {
		out.Evaluators = append(out.Evaluators,
			evaluatorScore{e.EvaluatorName, e.Result.Score, e.Result.Error, e.Result.NotRun})
	}
	if done := one.AgentExecutionOutput; done != nil && one.Status != schemas.StateSuspended &&
		!jsonobj.IsNull(done.Result.Output) {
		if out.Output = done.Result.Output; len(out.Output) > maxOutput {
			out.Output, out.OutputBytes = nil, len(out.Output)
		}
	}
	return out
}

// position is the beginning of a page: failed rollouts come first, in the order of the plan.
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
		if _, err = fmt.Sscanf(cursor, position{others: p.others}.String()[:7]+"%d", &p.index); err == nil && p.index >= 0 &&
			p.String() == cursor {
			return p, nil
		}
	}
	return p, &argumentError{"cursor: expected the nextCursor of a page, got " + string(jsonobj.Quote(cursor))}
}
