package footprint

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
)

// What was mapped of the program's file is less afterwards, and the program still runs.
func TestGiveBack(t *testing.T) {
	before := fileResident(t)
	GiveBack()
	if after := fileResident(t); after >= before {
		t.Errorf("%d kB of files are resident, and were %d before", after, before)
	}
}

// A program that is loaded anywhere (PIE) has constants that were changed when it was loaded. They stay.
func TestGiveBackInAProgramThatIsLoadedAnywhere(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	build := exec.CommandContext(t.Context(), "go", "build", "-buildmode=pie", "-o", program, "./testdata/program")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Skipf("it cannot be built here: %v: %s", err, out)
	}
	if out, err := exec.CommandContext(t.Context(), program).CombinedOutput(); err != nil || string(out) != "map[still:here]\n" {
		t.Errorf("%v: %s", err, out)
	}
}

func fileResident(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skip(err)
	}
	found := regexp.MustCompile(`RssFile:\s+(\d+) kB`).FindSubmatch(status)
	if found == nil {
		t.Skip("this kernel does not say what is resident of files")
	}
	kb, err := strconv.Atoi(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	return kb
}
