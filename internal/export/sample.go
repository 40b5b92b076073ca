package export

import (
	"encoding/json"
	"fmt"

	"github.com/evalrun/evalrun/schemas"
)

// inspectSample is EvalSample of inspect_ai.
type inspectSample struct {
	ID          string                        `json:"id"`
	Epoch       int                           `json:"epoch"`
	Input       string                        `json:"input"`
	Target      string                        `json:"target"`
	Messages    []inspectMessage              `json:"messages"`
	Output      inspectOutput                 `json:"output"`
	Scores      map[string]inspectSampleScore `json:"scores,omitempty"`
	Metadata    map[string]any                `json:"metadata"`
	ModelUsage  map[string]inspectUsage       `json:"model_usage"`
	StartedAt   string                        `json:"started_at,omitempty"`
	CompletedAt string                        `json:"completed_at,omitempty"`
	TotalTime   float64                       `json:"total_time"`
	WorkingTime float64                       `json:"working_time"`
	UUID        string                        `json:"uuid"`
	Error       *inspectError                 `json:"error,omitempty"`
	Limit       *inspectLimit                 `json:"limit,omitempty"`
}

type inspectMessage struct {
	Role       string          `json:"role"`
	Content    any             `json:"content"`
	Source     string          `json:"source,omitempty"`
	ToolCalls  []inspectCall   `json:"tool_calls,omitempty"`
	ToolCallID string          `json:"tool_call_id,omitempty"`
	Function   string          `json:"function,omitempty"`
	Model      string          `json:"model,omitempty"`
	Error      *inspectFailure `json:"error,omitempty"`
}

type inspectCall struct {
	ID        string          `json:"id"`
	Function  string          `json:"function"`
	Arguments json.RawMessage `json:"arguments"`
	Type      string          `json:"type"`
}

type inspectFailure struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

type inspectOutput struct {
	Model      string          `json:"model"`
	Choices    []inspectChoice `json:"choices"`
	Completion string          `json:"completion"`
	Error      string          `json:"error,omitempty"`
}

type inspectChoice struct {
	Message    inspectMessage `json:"message"`
	StopReason string         `json:"stop_reason"`
}

type inspectSampleScore struct {
	Value       float64        `json:"value"`
	Answer      string         `json:"answer,omitempty"`
	Explanation string         `json:"explanation,omitempty"`
	Metadata    map[string]any `json:"metadata,omitempty"`
}

type inspectError struct {
	Message       string `json:"message"`
	Traceback     string `json:"traceback"`
	TracebackANSI string `json:"traceback_ansi"`
}

type inspectLimit struct {
	Type   string  `json:"type"`
	Limit  float64 `json:"limit"`
	Reason string  `json:"reason"`
}

// inspectSummary is EvalSampleSummary of inspect_ai.
type inspectSummary struct {
	ID           string                        `json:"id"`
	Epoch        int                           `json:"epoch"`
	Input        string                        `json:"input"`
	Target       string                        `json:"target"`
	Scores       map[string]inspectSampleScore `json:"scores,omitempty"`
	ModelUsage   map[string]inspectUsage       `json:"model_usage"`
	StartedAt    string                        `json:"started_at,omitempty"`
	CompletedAt  string                        `json:"completed_at,omitempty"`
	TotalTime    float64                       `json:"total_time"`
	WorkingTime  float64                       `json:"working_time"`
	UUID         string                        `json:"uuid"`
	Error        string                        `json:"error,omitempty"`
	Limit        string                        `json:"limit,omitempty"`
	Completed    bool                          `json:"completed"`
	MessageCount int                           `json:"message_count"`
}

// add writes a sample. A rollout that has not begun makes none.
func (l *inspectLog) add(one *schemas.Rollout) error {
	l.dataset(one.EvaluationID)
	if one.Segments == 0 && !one.Status.IsTerminal() {
		return nil
	}
	t, err := newTranscript(l.r, one)
	if err != nil {
		return err
	}
	s := l.sample(one, t)
	if one.Status == schemas.StateCompleted {
		l.completed++
	}
	short := inspectSummary{
		ID: s.ID, Epoch: s.Epoch, Input: cut(s.Input), Target: cut(s.Target), ModelUsage: s.ModelUsage,
		StartedAt: s.StartedAt, CompletedAt: s.CompletedAt, TotalTime: s.TotalTime, WorkingTime: s.WorkingTime,
		UUID: s.UUID, Completed: one.Status == schemas.StateCompleted, MessageCount: len(s.Messages),
	}
	for name, score := range s.Scores {
		if short.Scores == nil {
			short.Scores = map[string]inspectSampleScore{}
		}
		short.Scores[name] = inspectSampleScore{Value: score.Value}
	}
	if s.Error != nil {
		short.Error = s.Error.Message
	}
	if s.Limit != nil {
		short.Limit = s.Limit.Type
	}
	l.summaries = append(l.summaries, short)
	return l.member(fmt.Sprintf("samples/%s_epoch_%d.json", s.ID, s.Epoch), s)
}

// dataset counts the evaluations, whose rollouts come one after the other.
func (l *inspectLog) dataset(id string) {
	if n := len(l.ids); n == 0 || l.ids[n-1] != id {
		l.ids = append(l.ids, id)
	}
}

func cut(text string) string {
	if len(text) <= summaryText {
		return text
	}
	for at := summaryText; ; at-- {
		if text[at]&0xC0 != 0x80 { // a character begins here
			return text[:at] + "…"
		}
	}
}

func (l *inspectLog) sample(one *schemas.Rollout, t transcript) inspectSample {
	s := inspectSample{
		ID: one.EvaluationID, Epoch: one.Epoch, Input: text(one.Inputs), Target: text(one.ExpectedOutput),
		ModelUsage: l.usageOf(one), StartedAt: stamp(one.StartedAt), CompletedAt: stamp(one.FinishedAt),
		TotalTime: seconds(one.Clocks.WallMs), WorkingTime: seconds(one.Clocks.WorkingMs), UUID: one.RolloutID,
		Metadata: map[string]any{
			"evaluation_name": one.EvaluationName, "agent": one.Agent, "status": one.Status,
			"segments": one.Segments, "clocks": one.Clocks,
		},
		Messages: l.messages(one, t),
	}
	if s.Input == "" && len(t.turns) > 0 {
		s.Input = t.turns[0].text // a task has instructions instead
	}
	for name, value := range map[string]any{
		"unscored": unscored(one), "tags": one.Tags, "evaluation": one.Metadata, "resumed_by": one.ResumedBy,
	} {
		if text, err := json.Marshal(value); err == nil && len(text) > 2 && string(text) != "null" {
			s.Metadata[name] = value
		}
	}
	if t.missing != "" {
		s.Metadata["missing"] = t.missing
	}
	s.Output = inspectOutput{Model: modelOf(l.r, one), Choices: []inspectChoice{}}
	if reason := why(one); reason != "" {
		s.Error = &inspectError{Message: reason}
		return s // no score of it counts
	}
	s.Output.Completion = t.answer()
	s.Output.Choices = append(s.Output.Choices, inspectChoice{inspectMessage{
		Role: "assistant", Content: s.Output.Completion, Source: "generate", Model: s.Output.Model,
	}, "stop"})
	s.Scores = scores(one, s.Output.Completion)
	if one.Limit != nil {
		s.Limit = &inspectLimit{Type: limitType(one.Limit.Category), Reason: one.Limit.Error()}
	}
	return s
}

// limitType returns Inspect's name of a limit.
func limitType(category string) string {
	switch category {
	case "timeout":
		return "working"
	case "budget":
		return "token"
	}
	return "custom"
}

// scores returns the scores of the evaluators that gave one, from 0 to 1.
func scores(one *schemas.Rollout, answer string) map[string]inspectSampleScore {
	out := map[string]inspectSampleScore{}
	for _, e := range one.EvaluationRunResults {
		if e.Result.Score == nil || e.IsLineResult {
			continue
		}
		s := inspectSampleScore{Value: scaled(e.Result), Answer: answer, Explanation: text(e.Result.Details)}
		if e.Result.Error != "" {
			s.Explanation = e.Result.Error
		}
		if e.Result.Judge != nil {
			s.Metadata = map[string]any{"judge": e.Result.Judge}
		}
		name := e.EvaluatorName
		if _, taken := out[name]; taken {
			name = e.EvaluatorID
		}
		out[name] = s
	}
	return out
}

// messages returns the messages of the conversation. Each result of a tool is a message of its own.
func (l *inspectLog) messages(one *schemas.Rollout, t transcript) []inspectMessage {
	out := []inspectMessage{}
	name := modelOf(l.r, one)
	for _, turn := range t.turns {
		switch turn.role {
		case user:
			out = append(out, inspectMessage{Role: "user", Content: turn.text, Source: "input"})
		case system:
			// The agent has not seen it: evalrun writes it itself, in the metadata.
		case model:
			m := inspectMessage{Role: "assistant", Content: turn.text, Source: "generate", Model: name}
			if turn.thought != "" {
				m.Content = []map[string]string{
					{"type": "reasoning", "reasoning": turn.thought}, {"type": "text", "text": turn.text},
				}
			}
			var results []inspectMessage
			for _, c := range turn.calls {
				m.ToolCalls = append(m.ToolCalls, inspectCall{c.id, c.name, c.arguments, "function"})
				r := inspectMessage{Role: "tool", Content: c.result, ToolCallID: c.id, Function: c.name}
				if c.failed {
					r.Error = &inspectFailure{"unknown", c.result}
				}
				results = append(results, r)
			}
			out = append(append(out, m), results...)
		}
	}
	return out
}
