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

// meter counts what the calls of models through the proxy have used, and ends the turn when that is
// more than the budget.
type meter struct {
	log    *record.UsageLog
	budget *agent.Budget
	limits *limits

	mu   sync.Mutex
	used []eval.Usage
	err  error
}

// count counts a call that has ended. With an error no other may begin.
func (m *meter) count(c modelproxy.Call) error {
	u := eval.Usage{Model: c.Model, InputTokens: c.InputTokens, CachedInputTokens: c.CachedInputTokens,
		OutputTokens: c.OutputTokens}
	if u.Tokens() == 0 && (c.Unmetered || c.Aborted) {
		u.Unmetered = 1 // a provider charges for what was given up too
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

// total is what was used, when no call comes any more.
func (m *meter) total() ([]eval.Usage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used, m.err
}

// reported takes what the agent says of its use of models, if the proxy has not counted it: the
// tokens of the turn, and what the session has cost in US dollars less what it had cost before.
func (s *segment) reported() {
	u := usageOf(s.promptUsage)
	kept := &s.conversation.record
	if cost := s.client.lastCost(); cost != nil {
		spent := *cost
		if s.info.ResumedBy != string(ByReplay) && spent >= kept.Cost { // less if the agent has begun anew
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

// usageOf reads the usage of an answer to a prompt. It is not settled whether the input includes
// what came from a cache, and the output the thoughts: the sum tells.
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
