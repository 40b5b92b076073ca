package main

import (
	"flag"
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/evalrun/evalrun/sandbox"
)

var update = flag.Bool("update", false, "write what the tests got into their golden files")

// TestMain lets the test binary be evalrun, under that name: for the scripts, and for the supervisors of the jobs that they start.
func TestMain(m *testing.M) {
	sandbox.InitMain()
	testscript.Main(m, map[string]func(){"evalrun": func() { os.Exit(Main()) }})
}

// TestScripts runs the scripts, each of which says what one thing does. At the end of each no process may be left.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		Cmds:                scriptCommands(),
		RequireUniqueNames:  true,
		RequireExplicitExec: true,
		UpdateScripts:       *update,
		Setup: func(env *testscript.Env) error {
			env.Values[backgroundKey{}] = map[string]*background{}
			env.Setenv("TERM", "dumb")
			env.Setenv("GORACE", "atexit_sleep_ms=0") // with -race every process would take a second to end
			env.Defer(func() { nothingLeft(env) })
			return nil
		},
	})
}
