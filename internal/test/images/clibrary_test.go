package images

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/testenv"
)

// T21, R24: the program that make builds enters an image that has no C library. Those with another
// one are in internal/test/published, which has the base images.
func TestImageWithoutCLibrary(t *testing.T) {
	t.Parallel()
	scratchTask(t).passes()
}

// A program that was built otherwise, and cannot be run by an image, is what is at fault; neither
// the task nor its tests are.
func TestImageThatCannotRunEvalrun(t *testing.T) {
	t.Parallel()
	k := scratchTask(t)
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("this needs gcc: without a C compiler Go builds what is static anyway")
	}
	programs := t.TempDir()
	cmd := exec.Command("go", "build", "-ldflags=-s -w", "-o", filepath.Join(programs, "evalrun"), testenv.Evalrun)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, agent := range []string{"oracle", "nop"} {
		run := k.command("run", "-o", "results.json", "--agent", agent, "task")
		run.Path = filepath.Join(programs, "evalrun")
		out, _ := run.CombinedOutput() // the exit code is looked at
		r := k.results()
		if code := run.ProcessState.ExitCode(); code != 3 || r.Error == nil || r.Error.Category != string(fault.Setup) || !strings.Contains(r.Error.Message, "this evalrun was built with cgo and needs /lib") {
			t.Errorf("%s: exit code %d, %+v\n%s", agent, code, r.Error, out)
		}
	}
}

// scratchTask is a task whose image has one static program, which stands for bash.
func scratchTask(t *testing.T) *task {
	t.Helper()
	k := newTask(t, asImage, plain, "", "", "")
	build := exec.Command("go", "build", "-ldflags=-s -w", "-o", k.path("environment/bash"), "./testdata/shell")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	k.write("environment/Dockerfile", "FROM scratch\nCOPY bash /bin/bash\n")
	k.write("environment/.dockerignore", "root\n")
	k.write("solution/solve.sh", "put /made made\n")
	k.write("tests/test.sh", "put /logs/verifier/reward.txt 0\nhave /made\nput /logs/verifier/reward.txt 1\n")
	return k
}
