package sources

import (
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/internal/wait/exec"
	"github.com/evalrun/evalrun/internal/wait/http"
	"github.com/evalrun/evalrun/internal/wait/mesh"
	"github.com/evalrun/evalrun/internal/wait/uipath"
)

// A program that imports this package can read entries of these kinds, and make their sources.
func init() {
	wait.Register(externalKind, exec.Kind, http.Kind, uipath.Kind, mesh.Kind, mcpKind, fixedKind)
}

// externalKind is for jobs that somebody else starts and delivers.
var externalKind = wait.Kind{Name: wait.SourceExternal}

// mcpKind is for jobs that are asked for at the MCP server whose tool has started them.
var mcpKind = wait.Kind{
	Name: wait.SourceMCP, Handle: true, Polled: true,
	Serves: func(_ wait.JobConfig, spec wait.Spec) bool { return spec.CallID != "" },
	New:    func(_ wait.JobConfig, e wait.Env) (wait.Source, error) { return e.MCP, nil },
}

// fixedKind is for jobs that are played. Their triggers have what arrives.
var fixedKind = wait.Kind{
	Name: wait.SourceFixed, Parse: wait.ParseFixed, Settings: func() wait.Settings { return new(wait.FixedConfig) },
	Serves: func(_ wait.JobConfig, spec wait.Spec) bool { return spec.CallID == "" },
}
