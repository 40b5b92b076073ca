package runner

import (
	"maps"
	"path/filepath"
	"slices"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/mock"
	"github.com/evalrun/evalrun/internal/plans"
)

// readMocks reads the mocks of tools: those of the set and of its evaluations, and those of a file
// if its path is not empty. They are nil if there are none.
func readMocks(r *input.Reader, set *eval.Set, path string) (*mock.Mocks, error) {
	out := &mock.Mocks{Set: mock.Parse(r, set.Mocks, "mocks")}
	for _, id := range slices.Sorted(maps.Keys(set.MocksOf)) {
		if list := mock.Parse(r, set.MocksOf[id], "evaluation "+id+" mocks"); len(list) > 0 {
			if out.Evaluations == nil {
				out.Evaluations = map[string][]mock.Mock{}
			}
			out.Evaluations[id] = list
		}
	}
	if path != "" {
		n, err := readPlayed(r, path, "mocks")
		if err != nil {
			return nil, err
		}
		out.File = mock.Parse(r, n, filepath.Base(path)+" mocks")
	}
	for _, id := range slices.Sorted(maps.Keys(set.MockedFunctions)) {
		if out.Functions == nil {
			out.Functions = map[string]*mock.Functions{}
		}
		out.Functions[id] = mock.ParseFunctions(r, set.MockedFunctions[id], "evaluation "+id+" mockingStrategy")
	}
	if !out.Tools() && out.Functions == nil {
		return nil, nil
	}
	return out, nil
}

// checkMocks refuses mocks that no agent would get: the MCP gateway plays them.
func (e *EvalSet) checkMocks() error {
	if !e.req.Mocks.Tools() {
		return nil
	}
	behind := func(a agent.Entry) bool { return a.Needs().Gateway }
	switch {
	case e.opts.Sandbox.MCPDirect:
		return inputError("mocks: the MCP gateway plays them, and with --mcp %s agents do not go through it", plans.MCPDirect)
	case !slices.ContainsFunc(e.req.Agents, behind):
		return inputError("mocks: the MCP gateway plays them, and the agent %s (type %s) does not call its tools through it",
			e.req.Agents[0].Name, e.req.Agents[0].Type)
	}
	return nil
}
