package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/evalrun/evalrun/internal/cgroup"
	"github.com/evalrun/evalrun/internal/sandbox"
	"github.com/evalrun/evalrun/internal/testenv"
)

var update = flag.Bool("update", false, "write what the tests got into their golden files")

// TestMain lets the test binary be evalrun, under that name: for the scripts, and for the
// supervisors of the jobs that they start.
func TestMain(m *testing.M) {
	sandbox.InitMain()
	if os.Getenv(leakVar) != "" && (len(os.Args) == 1 || os.Args[1] == "print") {
		leaky()
		os.Exit(0)
	}
	testscript.Main(m, map[string]func(){"evalrun": func() { os.Exit(Main()) }})
}

// TestScripts runs the scripts, each of which says what one thing does. At the end of each no
// process may be left, and the files of its runs must be as their schemas say.
func TestScripts(t *testing.T) {
	scripts, err := filepath.Glob("testdata/script/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	if testenv.Short() { // under the race detector a process takes five times as long
		every := 5
		if !testing.Short() {
			every = 10 // in a contributor's first tests
		}
		for i := range len(scripts) / every {
			scripts[i] = scripts[every*i]
		}
		scripts = scripts[:len(scripts)/every]
	}
	runScripts(t, scripts, func(*testscript.Env) error { return nil })
}

// runScripts runs scripts, of which setup changes the environment.
func runScripts(t *testing.T, scripts []string, setup func(*testscript.Env) error) {
	t.Helper()
	fixtures, err := filepath.Abs("../../fixtures")
	if err != nil {
		t.Fatal(err)
	}
	commands := scriptCommands()
	commands["acpagent"] = acpAgentCommand(t.TempDir())
	testscript.Run(t, testscript.Params{
		Files:               scripts,
		Cmds:                commands,
		RequireUniqueNames:  true,
		RequireExplicitExec: true,
		UpdateScripts:       *update,
		Condition: func(cond string) (bool, error) {
			var variable string
			var err error
			switch cond {
			case "bwrap":
				variable, err = testenv.Bwrap, sandbox.Available()
			case "cgroups": // which not every machine lets us make
				missing := cgroup.Missing()
				return missing[cgroup.Memory] == nil && missing[cgroup.CPU] == nil, nil
			case "podman":
				variable, err = testenv.Podman, testenv.LacksPodman()
			case "python3":
				variable = testenv.Python
				_, err = exec.LookPath("python3")
			default:
				return false, fmt.Errorf("unknown condition %q", cond)
			}
			if err != nil && testenv.Required(variable) {
				return false, fmt.Errorf("%w (%s=required)", err, variable)
			}
			return err == nil, nil
		},
		Setup: func(env *testscript.Env) error {
			env.Values[backgroundKey{}] = map[string]*background{}
			env.Values[judgeKey{}] = &judging{}
			env.Setenv("TERM", "dumb")
			env.Setenv("FIXTURES", fixtures)
			env.Setenv("XDG_STATE_HOME", filepath.Join(env.WorkDir, "state"))
			env.Setenv("EVALRUN_IMAGES", filepath.Join(env.WorkDir, "images"))
			env.Setenv("GORACE", "atexit_sleep_ms=0") // with -race every process would take a second to end
			env.Defer(func() { nothingLeft(env) })
			env.Defer(func() { likeTheirSchemas(env) })
			return setup(env)
		},
	})
}
