package testenv

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// Given two tests that need the same program, when both build it, then each has one of its own, and
// what one does to its own is nothing to the other.
func TestBuild(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	for _, dir := range []string{first, second} {
		if err := Build(dir, ACPAgent); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("rm", filepath.Join(first, "acp-agent")).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err := exec.Command(filepath.Join(second, "acp-agent"), "-h").CombinedOutput(); len(out) == 0 {
		t.Errorf("the program said nothing: %v", err)
	}
	if err := Build(first, "example.com/nothing"); err == nil {
		t.Error("a package that is not there was built")
	}
}
