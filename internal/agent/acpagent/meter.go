package acpagent

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"sync"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/fault"
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

// limits ends the turn when a limit is reached. The first one counts.
type limits struct {
	reached chan *fault.Fault

	mu     sync.Mutex
	excess *fault.Fault
}

func newLimits() *limits { return &limits{reached: make(chan *fault.Fault, 1)} }

// reach ends the turn.
func (l *limits) reach(f *fault.Fault) {
	select {
	case l.reached <- f:
	default:
	}
}

// exceed records that the agent has said or sent too much, and ends the turn.
func (l *limits) exceed(f *fault.Fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.excess == nil {
		l.excess = f
		l.reach(f)
	}
}

// exceeded returns the fault of an agent that has said or sent too much; nil if it has not.
func (l *limits) exceeded() *fault.Fault {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.excess
}

// modelPort is the model's port on the loopback of a sandbox without network.
const modelPort = 18434

// openModel opens the agent's way to its model, if an endpoint with a key is configured.
func (s *segment) openModel() (*modelproxy.Session, *fault.Fault) {
	a, m := s.acpAgent, s.entry.Model
	if m == nil || a.opts.Models == nil {
		return nil, nil
	}
	key, unknown := a.opts.Expand(m.Key)
	if unknown != "" || key == "" && m.Key != "" {
		return nil, nil // the agent may have credentials of its own
	}
	target, unknown := a.opts.Expand(m.URL)
	if unknown != "" {
		return nil, fault.Newf(fault.Start, "the model's URL needs ${%s}, which is not set", unknown)
	}
	session, err := a.opts.Models.Open(modelproxy.Upstream{API: m.API, URL: target, Key: key, Counted: s.meter.count,
		Offered: s.offers.add})
	if err != nil {
		return nil, fault.New(fault.Start, err.Error())
	}
	return session, nil
}

// keepModelCalls writes the calls that the model proxy saw to FileModel.
func (s *segment) keepModelCalls() error {
	log := record.NewLines(filepath.Join(s.seg.Dir, FileModel), s.redact)
	for _, call := range s.model.Calls() {
		if err := log.Append(call); err != nil {
			return errors.Join(err, log.Close())
		}
	}
	return log.Close()
}
