package testenv

import (
	"fmt"
	"os/exec"
	"path/filepath"
)

// Build builds programs of this module into a folder, each under the name of its package. It leaves out
// what only a debugger needs, because most of the time goes into linking that.
func Build(dir string, packages ...string) error {
	args := append([]string{"build", "-ldflags=-s -w", "-o", dir + string(filepath.Separator)}, packages...)
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
}

// The programs of the fixtures that tests start.
const (
	ACPAgent    = "github.com/evalrun/evalrun/fixtures/acp-agent"
	JobsServer  = "github.com/evalrun/evalrun/fixtures/mcp/jobs"
	TasksServer = "github.com/evalrun/evalrun/fixtures/mcp/tasks"
	Evalrun     = "github.com/evalrun/evalrun/cmd/evalrun"
)
