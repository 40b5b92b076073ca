package acpagent

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/evalrun/evalrun/acp"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/agent/toolserver"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/gateway/suspend"
	"github.com/evalrun/evalrun/internal/grace"
	"github.com/evalrun/evalrun/internal/record"
)

// answer is the agent's answer to the prompt.
type answer struct {
	result acp.PromptResult
	err    error
}

// prompt runs the turn: the agent works until it answers, a limit is reached, or it has asked for
// something that has to wait.
func (s *segment) prompt(ctx context.Context, text string) agent.Outcome {
	s.trail.Add(record.EventPrompt, s.conversation.record.SessionID, text, nil)
	s.client.replay(false)
	s.idle.reset()
	if s.model != nil {
		s.model.Turn(true)
		defer s.model.Turn(false)
	}
	answers := make(chan answer, 1)
	calling, abandon := context.WithCancel(context.WithoutCancel(ctx))
	defer abandon()
	go func() {
		result, err := s.conn.Prompt(calling, s.conversation.record.SessionID, acp.Text(text))
		answers <- answer{result, err}
	}()
	defer s.idle.start()()
	var a answer
	var limit *fault.Fault
	select {
	case a = <-answers:
		answers = nil
		limit = s.limits.exceeded() // all output has been read by now
	case <-ctx.Done():
		limit = agent.CauseFault(ctx)
	case limit = <-s.limits.reached:
	case <-s.pending.suspendGraceOver:
		// The agent was told that a person has to answer, and goes on without the answer. Its
		// requests are enough.
	}
	switch {
	case !s.servers.behindGateway():
	case limit == nil || limit.Category == fault.Idle:
		suspend.Settle(ctx, s.servers.access, s.bounds.settle) // also if the agent has not waited for the answers
	case errors.Is(context.Cause(ctx), context.Canceled): // the process must stop
		suspend.Settle(context.WithoutCancel(ctx), s.servers.access, grace.Stop)
	}
	record := &s.conversation.record
	requests, left := s.pending.list(record.Pending)
	record.Pending = left
	waits := slices.Concat(left, requests) // unanswered requests are still pending
	if limit != nil && limit.Category == fault.Idle && len(waits) > 0 {
		limit = nil // until a person has answered, the agent has nothing to do
	}
	switch {
	case limit != nil && isLimit(limit.Category):
		return s.limited(calling, limit, answers)
	case limit != nil && limit.Category == fault.Budget:
		s.cancelTurn(calling, answers)
		return agent.Outcome{Fault: limit}
	case limit != nil:
		return agent.Outcome{Fault: limit}
	case a.err != nil:
		return agent.Outcome{Fault: connFault(ctx, a.err)}
	}
	s.stopped(a.result)
	switch {
	case len(waits) > 0:
		return s.conversation.suspend(requests)
	case a.result.StopReason == acp.StopCancelled && !s.client.wasDenied():
		return agent.Outcome{Fault: fault.New(fault.AgentError,
			"the agent says that its turn was cancelled, and nobody has cancelled it")}
	}
	return agent.Outcome{Output: output(s.trail.LastMessage(), s.info.StopReason, nil)}
}

// isLimit reports whether the agent's work up to a fault of this category can still be judged.
func isLimit(c fault.Category) bool {
	return c == fault.Timeout || c == fault.Idle || c == fault.OutputLimit
}

// limited ends a turn at a limit. The work up to then can be verified, if there is a verifier.
// answers is nil if the turn has ended.
func (s *segment) limited(ctx context.Context, limit *fault.Fault, answers <-chan answer) agent.Outcome {
	s.trail.Add(record.EventLimit, s.conversation.record.SessionID, "", limit)
	s.cancelTurn(ctx, answers)
	s.info.Limit = limit
	return agent.Outcome{Output: output(s.trail.LastMessage(), s.info.StopReason, limit), Limit: limit}
}

// cancelTurn tells the agent to end its turn. answers is nil if the turn has ended.
func (s *segment) cancelTurn(ctx context.Context, answers <-chan answer) {
	if answers == nil {
		return
	}
	// An agent that does not read its input cannot be told either.
	ctx, cancel := context.WithTimeout(ctx, s.bounds.cancel)
	defer cancel()
	if s.conn.Cancel(ctx, s.conversation.record.SessionID) == nil {
		select {
		case late := <-answers: // the answer may still report usage
			s.stopped(late.result)
		case <-ctx.Done():
		}
	}
}

// stopped records the answer to the prompt.
func (s *segment) stopped(result acp.PromptResult) {
	if result.StopReason == "" {
		return
	}
	s.info.StopReason = result.StopReason
	if len(result.Usage) > 0 && !toolserver.IsNothing(result.Usage) {
		s.info.AgentUsage, s.promptUsage = result.Usage, result.Usage
	}
	s.trail.Add(record.EventStop, s.conversation.record.SessionID, "",
		map[string]any{"stopReason": result.StopReason, "usage": result.Usage})
}

// output returns the document of an agent that speaks in words: its last message.
func output(lastMessage, stopReason string, limit *fault.Fault) json.RawMessage {
	out, err := json.Marshal(struct {
		Content    string       `json:"content"`
		StopReason string       `json:"stopReason,omitempty"`
		Limit      *fault.Fault `json:"limit,omitempty"`
	}{lastMessage, stopReason, limit})
	if err != nil {
		return json.RawMessage("{}") // strings always marshal
	}
	return out
}
