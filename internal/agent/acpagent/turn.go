package acpagent

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/evalrun/evalrun/acp"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/wait"
)

// answer is what the agent answered to the prompt.
type answer struct {
	result acp.PromptResult
	err    error
}

// prompt has the turn: the agent works until it answers, a limit is reached, or it has asked for something that has to wait.
func (s *segment) prompt(ctx context.Context, text string) agent.Outcome {
	s.trail.Add(agent.EventPrompt, s.record.SessionID, text, nil)
	s.client.begin()
	if s.model != nil {
		s.model.Turn(true)
		defer s.model.Turn(false)
	}
	answers := make(chan answer, 1)
	calling, abandon := context.WithCancel(context.WithoutCancel(ctx))
	defer abandon()
	go func() {
		result, err := s.conn.Prompt(calling, s.record.SessionID, acp.Text(text))
		answers <- answer{result, err}
	}()
	defer s.client.watchIdle()()
	var a answer
	var limit *fault.Fault
	select {
	case a = <-answers:
		answers = nil
		limit = s.client.tooMuch() // all of it has been read by now
	case <-ctx.Done():
		limit = agent.CauseFault(ctx)
	case limit = <-s.client.limits:
	case <-s.client.waitedOut:
		// It was told that a person has to answer, and goes on without: what it has asked for is enough.
	}
	if limit == nil || limit.Category == fault.Idle {
		s.settle(ctx)
	}
	var asked []asked
	asked, s.record.Asked = s.client.waits(s.record.Asked)
	waits := slices.Concat(s.record.Asked, asked) // what was not answered yet is still waited for
	if limit != nil && limit.Category == fault.Idle && len(waits) > 0 {
		limit = nil // until the person has answered it has nothing to do
	}
	switch {
	case limit != nil && isLimit(limit.Category):
		return s.limited(calling, limit, answers)
	case limit != nil:
		return agent.Outcome{Fault: limit}
	case a.err != nil:
		return agent.Outcome{Fault: s.fault(ctx, a.err)}
	}
	s.stopped(a.result)
	if len(waits) > 0 {
		return s.suspended(asked)
	}
	return agent.Outcome{Output: s.output(nil)}
}

// isLimit reports whether what the agent did until then can be judged all the same.
func isLimit(c fault.Category) bool {
	return c == fault.Timeout || c == fault.Idle || c == fault.OutputLimit
}

// limited ends a turn at a limit: what was done by then can be verified, if there is a verifier. answers is nil if the turn has ended.
func (s *segment) limited(ctx context.Context, limit *fault.Fault, answers <-chan answer) agent.Outcome {
	s.trail.Add(agent.EventLimit, s.record.SessionID, "", limit)
	if answers != nil {
		// One that does not read what it is sent cannot be told either.
		ctx, cancel := context.WithTimeout(ctx, s.bounds.cancel)
		defer cancel()
		if s.conn.Cancel(ctx, s.record.SessionID) == nil {
			select {
			case late := <-answers: // it may still report what it has used
				s.stopped(late.result)
			case <-ctx.Done():
			}
		}
	}
	s.info.Limit = limit
	return agent.Outcome{Output: s.output(limit), Limit: limit}
}

// stopped records the answer to the prompt.
func (s *segment) stopped(result acp.PromptResult) {
	if result.StopReason == "" {
		return
	}
	s.info.StopReason = result.StopReason
	if len(result.Usage) > 0 && !isNothing(result.Usage) {
		s.info.AgentUsage = result.Usage
	}
	s.trail.Add(agent.EventStop, s.record.SessionID, "", map[string]any{"stopReason": result.StopReason, "usage": result.Usage})
}

// output is the document of an agent that speaks in words: the last thing that it said.
func (s *segment) output(limit *fault.Fault) json.RawMessage {
	out, err := json.Marshal(struct {
		Content    string       `json:"content"`
		StopReason string       `json:"stopReason,omitempty"`
		Limit      *fault.Fault `json:"limit,omitempty"`
	}{s.trail.LastMessage(), s.info.StopReason, limit})
	if err != nil {
		return json.RawMessage("{}") // strings always marshal
	}
	return out
}

// suspended is the outcome of a turn in which something has to wait, beside what has been waited for before.
func (s *segment) suspended(waits []asked) agent.Outcome {
	var interrupts []wait.Interrupt
	waits = slices.DeleteFunc(slices.Clone(waits), func(a asked) bool {
		return slices.ContainsFunc(s.record.Asked, func(b asked) bool { return b.Interrupt == a.Interrupt })
	})
	for _, a := range waits {
		if a.Work != nil {
			s.client.mu.Lock()
			a.ToolCallID = s.client.callOf(a.Work)
			s.client.mu.Unlock()
		}
		// The record is a file: it has the words for the next prompt without secrets, and not what the tool was to be given.
		s.record.Asked = append(s.record.Asked, s.recorded(a))
	}
	for _, a := range slices.Concat(s.record.Asked[:len(s.record.Asked)-len(waits)], waits) {
		in, err := a.interrupt()
		if err != nil {
			return agent.Outcome{Fault: fault.New(fault.InvalidInterrupt, err.Error())}
		}
		interrupts = append(interrupts, in)
	}
	s.trail.Add(agent.EventSuspended, s.record.SessionID, "", s.waitsFor())
	return agent.Outcome{Interrupts: interrupts}
}

// recorded is something that is waited for as the session's record has it: a file, and so without secrets. What it takes to ask for work is in the
// trigger; the handle of a job is needed to fetch its result.
func (s *segment) recorded(a asked) asked {
	opts := agent.Options{Redact: s.redact}
	a.Title, a.Input = opts.RedactText(a.Title), nil
	if a.Work != nil {
		work := *a.Work
		work.Arguments = json.RawMessage(opts.RedactText(string(work.Arguments)))
		if !json.Valid(work.Arguments) {
			work.Arguments = json.RawMessage("{}")
		}
		if work.Task != nil {
			work.Task = &gateway.Task{Era: work.Task.Era}
		}
		if work.Input != nil {
			work.Input = &gateway.Input{Requests: json.RawMessage(opts.RedactText(string(work.Input.Requests)))}
			if !json.Valid(work.Input.Requests) {
				work.Input.Requests = nil
			}
		}
		a.Work = &work
	}
	return a
}

// waitsFor is what the trajectory tells of what is waited for.
func (s *segment) waitsFor() (out []map[string]string) {
	for _, a := range s.record.Asked {
		out = append(out, map[string]string{"interrupt": a.Interrupt, "what": a.What, "title": a.Title, "kind": a.Kind, "toolCallId": a.ToolCallID})
	}
	return out
}
