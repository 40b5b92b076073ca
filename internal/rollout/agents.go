package rollout

import (
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/agent/acpagent"
	"github.com/evalrun/evalrun/internal/agent/function"
	"github.com/evalrun/evalrun/internal/agent/oracle"
)

// newAgent makes an agent of an entry.
func newAgent(e agent.Entry, opts acpagent.Options) (agent.Agent, error) {
	if err := e.Check(); err != nil {
		return nil, err
	}
	switch e.Type {
	case agent.TypeFunction:
		return function.New(e, opts.Options), nil
	case agent.TypeACP:
		return acpagent.New(e, opts), nil
	case agent.TypeOracle:
		return oracle.New(opts.Options), nil
	default: // agent.TypeNop: Check knows no other
		return oracle.Nop{}, nil
	}
}
