package acpagent

import (
	"encoding/json"
	"errors"
	"sync"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/modelproxy"
	"github.com/evalrun/evalrun/internal/record"
)

// meter adds up the usage of the model calls through the proxy, and ends the turn when it exceeds
// the budget.
type meter struct {
	log    *record.UsageLog
	budget *agent.Budget
	limits *limits

	mu   sync.Mutex
	used []eval.Usage
	err  error
}

// count counts a call that has ended. After an error no other call may begin.
func (m *meter) count(c modelproxy.Call) error {
	u := eval.Usage{Model: c.Model, InputTokens: c.InputTokens, CachedInputTokens: c.CachedInputTokens,
		OutputTokens: c.OutputTokens}
	if u.Tokens() == 0 && (c.Unmetered || c.Aborted) {
		u.Unmetered = 1 // a provider also charges for calls that were given up
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if u.Tokens() > 0 || u.Unmetered > 0 {
		m.used = eval.MergeUsage(append(m.used, u)...)
		m.err = errors.Join(m.err, m.log.Append(u))
	}
	if f := m.budget.Exceeded(m.used); f != nil {
		m.limits.exceed(f)
		return errors.New(f.Message)
	}
	return nil
}

// total returns the usage. It is called when no further call comes.
func (m *meter) total() ([]eval.Usage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used, m.err
}

// reported takes over the usage that the agent reports, if the proxy has not counted it: the tokens
// of the turn, and the cost of the session in US dollars less its cost before.
func (s *segment) reported() {
	u := usageOf(s.promptUsage)
	kept := &s.conversation.record
	if cost := s.client.lastCost(); cost != nil {
		spent := *cost
		if s.info.ResumedBy != string(ByReplay) && spent >= kept.Cost { // it is less if the agent has begun anew
			spent -= kept.Cost
		}
		u.Cost, kept.Cost = &spent, *cost
	}
	if u.Tokens() == 0 && u.Cost == nil {
		return
	}
	if s.entry.Model != nil {
		u.Model = s.entry.Model.Name
	}
	s.info.Usage, s.info.UsageSource = []eval.Usage{u}, record.UsageOfAgent
}

// usageOf reads the usage of an answer to a prompt. Agents differ in whether the input includes
// cached tokens, and the output the thoughts: the total tells which.
func usageOf(raw json.RawMessage) (u eval.Usage) {
	var in struct {
		Total   int64 `json:"totalTokens"`
		Input   int64 `json:"inputTokens"`
		Output  int64 `json:"outputTokens"`
		Thought int64 `json:"thoughtTokens"`
		Read    int64 `json:"cachedReadTokens"`
		Written int64 `json:"cachedWriteTokens"`
	}
	if json.Unmarshal(raw, &in) != nil || min(in.Total, in.Input, in.Output, in.Thought, in.Read, in.Written) < 0 {
		return u
	}
	u = eval.Usage{InputTokens: in.Input, CachedInputTokens: in.Read, OutputTokens: in.Output}
	cache := in.Read + in.Written
	switch in.Total {
	case in.Input + in.Output:
	case in.Input + in.Output + cache:
		u.InputTokens += cache
	case in.Input + in.Output + in.Thought:
		u.OutputTokens += in.Thought
	case in.Input + in.Output + cache + in.Thought:
		u.InputTokens += cache
		u.OutputTokens += in.Thought
	}
	u.InputTokens = max(u.InputTokens, u.CachedInputTokens)
	return u
}
