// Package types registers all types of agents. A program that imports it can read their entries,
// and run them.
package types

import (
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/agent/a2aagent"
	"github.com/evalrun/evalrun/internal/agent/acpagent"
	"github.com/evalrun/evalrun/internal/agent/function"
	"github.com/evalrun/evalrun/internal/agent/graphserver"
	"github.com/evalrun/evalrun/internal/agent/httpagent"
	"github.com/evalrun/evalrun/internal/agent/modelagent"
	"github.com/evalrun/evalrun/internal/agent/nodeagent"
	"github.com/evalrun/evalrun/internal/agent/oracle"
	"github.com/evalrun/evalrun/internal/agent/pyagent"
)

func init() {
	agent.Register(function.Type, nodeagent.Type) // in langgraph.json the graphs of Node are found before those of Python
	agent.Register(pyagent.Types...)
	agent.Register(acpagent.Type, modelagent.Type, httpagent.Type, a2aagent.Type, graphserver.Type, oracle.Type, oracle.Nop)
}
