package export

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/evalrun/evalrun/internal/report"
	"github.com/evalrun/evalrun/schemas"
)

// atifVersion is the version of the Agent Trajectory Interchange Format, Harbor's RFC 0001.
const atifVersion = "ATIF-v1.7"

// atifTrajectory is one rollout in ATIF.
type atifTrajectory struct {
	SchemaVersion string      `json:"schema_version"`
	SessionID     string      `json:"session_id"`
	TrajectoryID  string      `json:"trajectory_id"`
	Agent         atifAgent   `json:"agent"`
	Steps         []atifStep  `json:"steps"`
	Notes         string      `json:"notes,omitempty"`
	FinalMetrics  atifMetrics `json:"final_metrics"`
	Extra         atifExtra   `json:"extra"`
}

type atifAgent struct {
	Name      string `json:"name"`
	Version   string `json:"version"`
	ModelName string `json:"model_name,omitempty"`
}

type atifStep struct {
	StepID           int              `json:"step_id"`
	Timestamp        string           `json:"timestamp,omitempty"`
	Source           role             `json:"source"`
	Message          string           `json:"message"`
	ReasoningContent string           `json:"reasoning_content,omitempty"`
	ToolCalls        []atifCall       `json:"tool_calls,omitempty"`
	Observation      *atifObservation `json:"observation,omitempty"`
}

type atifCall struct {
	ToolCallID   string          `json:"tool_call_id"`
	FunctionName string          `json:"function_name"`
	Arguments    json.RawMessage `json:"arguments"`
	Extra        map[string]any  `json:"extra,omitempty"`
}

type atifObservation struct {
	Results []atifResult `json:"results"`
}

type atifResult struct {
	SourceCallID string         `json:"source_call_id"`
	Content      string         `json:"content"`
	Extra        map[string]any `json:"extra,omitempty"`
}

type atifMetrics struct {
	PromptTokens     *int64   `json:"total_prompt_tokens,omitempty"`
	CompletionTokens *int64   `json:"total_completion_tokens,omitempty"`
	CachedTokens     *int64   `json:"total_cached_tokens,omitempty"`
	CostUSD          *float64 `json:"total_cost_usd,omitempty"`
	Steps            int      `json:"total_steps"`
}

// atifExtra has the facts for which ATIF has no place.
type atifExtra struct {
	RunID          string             `json:"run_id"`
	EvaluationID   string             `json:"evaluation_id"`
	EvaluationName string             `json:"evaluation_name"`
	Epoch          int                `json:"epoch"`
	Status         schemas.State      `json:"status"`
	Error          *schemas.Fault     `json:"error,omitempty"`
	Limit          *schemas.Fault     `json:"limit,omitempty"`
	Score          *float64           `json:"score"`
	Scores         map[string]float64 `json:"scores,omitempty"`
	Unscored       map[string]string  `json:"unscored,omitempty"`
	Segments       int                `json:"segments"`
	Clocks         schemas.Clocks     `json:"clocks"`
}

// ATIF calls f with the trajectory of each rollout that has begun, and returns how many have not.
func ATIF(r *report.Report, f func(rolloutID string, trajectory json.RawMessage) error) (pending int, err error) {
	err = r.Traced(func(one *schemas.Rollout) error {
		if one.Segments == 0 {
			pending++
			return nil
		}
		t, err := newTranscript(r, one)
		if err != nil {
			return err
		}
		data, err := json.Marshal(atifOf(r, one, t))
		if err != nil {
			return err
		}
		return f(one.RolloutID, data)
	})
	return pending, err
}

// WriteATIF writes all trajectories, each in one line.
func WriteATIF(w io.Writer, r *report.Report) error {
	_, err := ATIF(r, func(_ string, trajectory json.RawMessage) error {
		_, err := fmt.Fprintf(w, "%s\n", trajectory)
		return err
	})
	return err
}

func atifOf(r *report.Report, one *schemas.Rollout, t transcript) atifTrajectory {
	out := atifTrajectory{
		SchemaVersion: atifVersion, SessionID: one.RolloutID, TrajectoryID: one.RolloutID,
		Agent: atifAgent{Name: one.Agent, Version: one.AgentVersion},
		Extra: atifExtra{
			RunID: r.RunID, EvaluationID: one.EvaluationID, EvaluationName: one.EvaluationName, Epoch: one.Epoch,
			Status: one.Status, Error: one.Error, Limit: one.Limit, Score: one.Score, Unscored: unscored(one),
			Segments: one.Segments, Clocks: one.Clocks,
		},
	}
	if out.Agent.Version == "" {
		out.Agent.Version = "unknown" // ATIF demands a version
	}
	out.Agent.ModelName = modelOf(r, one)
	for _, e := range one.EvaluationRunResults {
		if e.Result.Score != nil && !e.IsLineResult {
			if out.Extra.Scores == nil {
				out.Extra.Scores = map[string]float64{}
			}
			out.Extra.Scores[e.EvaluatorName] = scaled(e.Result)
		}
	}
	for _, turn := range t.turns {
		out.Steps = append(out.Steps, atifStepOf(turn))
	}
	if reason := why(one); reason != "" {
		out.Steps = append(out.Steps, atifStep{Source: system, Message: reason, Timestamp: stamp(one.FinishedAt)})
	}
	for i := range out.Steps {
		out.Steps[i].StepID = i + 1
	}
	if t.missing != "" {
		out.Notes = "missing: " + t.missing
	}
	out.FinalMetrics = atifMetrics{Steps: len(out.Steps)}
	if u := one.Usage; u != nil && u.Total != nil {
		out.FinalMetrics.PromptTokens, out.FinalMetrics.CompletionTokens, out.FinalMetrics.CachedTokens =
			&u.Total.InputTokens, &u.Total.OutputTokens, &u.Total.CachedInputTokens
		if u.Total.CostKnown() {
			out.FinalMetrics.CostUSD = u.Total.Cost
		}
	}
	return out
}

func atifStepOf(t turn) atifStep {
	out := atifStep{Timestamp: stampOf(t.at), Source: t.role, Message: t.text, ReasoningContent: t.thought}
	for _, c := range t.calls {
		one := atifCall{ToolCallID: c.id, FunctionName: c.name, Arguments: c.arguments}
		if c.server != "" {
			one.Extra = map[string]any{"mcp_server": c.server}
		}
		out.ToolCalls = append(out.ToolCalls, one)
		if out.Observation == nil {
			out.Observation = &atifObservation{}
		}
		result := atifResult{SourceCallID: c.id, Content: c.result}
		if c.failed {
			result.Extra = map[string]any{"is_error": true}
		}
		out.Observation.Results = append(out.Observation.Results, result)
	}
	return out
}

func stampOf(at time.Time) string { return stamp(&at) }

// modelOf returns the model that a rollout's agent used. It is empty if it is not known or there
// were several.
func modelOf(r *report.Report, one *schemas.Rollout) string {
	if u := one.Usage; u != nil && len(u.Models) == 1 && u.Models[0].Model != "" {
		return u.Models[0].Model
	}
	for _, a := range r.Agents {
		if a.Name == one.Agent {
			return a.Model
		}
	}
	return ""
}
