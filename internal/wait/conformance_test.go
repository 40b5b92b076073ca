package wait_test

import (
	"testing"

	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/internal/wait/waittest"
)

// The source mcp has the same test in its own package.
func TestSourcesKeepToTheirInterface(t *testing.T) {
	for _, name := range wait.SourceNames {
		if name == wait.SourceMCP {
			continue
		}
		t.Run(name, func(t *testing.T) {
			waittest.Run(t, waittest.Case(wait.SourceCases[name](t)))
		})
	}
}
