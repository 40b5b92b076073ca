package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// A program that does not run is not installed, and the one that is there stays; one that runs takes its
// place, and the first line of its version is said.
func TestInstallTriesTheProgram(t *testing.T) {
	dir := t.TempDir()
	install := func(program string) (string, error) {
		t.Helper()
		name := "evalrun_" + runtime.GOOS + "_" + runtime.GOARCH
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, "evalrun"), []byte(program), 0o755); err != nil {
			t.Fatal(err)
		}
		sums := `s=$(command -v sha256sum || echo shasum -a 256); tar -czf "$1.tar.gz" "$1" && $s "$1.tar.gz" >SHA256SUMS`
		pack := exec.Command("sh", "-c", sums, "sh", name)
		pack.Dir = dir
		if out, err := pack.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		out, err := exec.Command("sh", "install.sh", dir, filepath.Join(dir, "to")).CombinedOutput()
		return string(out), err
	}
	runs := "#!/bin/sh\necho evalrun 1.2.3\necho more\n"
	out, err := install(runs)
	if err != nil || !strings.Contains(out, "evalrun 1.2.3 is in "+dir) || strings.Contains(out, "more") {
		t.Fatalf("%v: %s", err, out)
	}
	out, err = install("#!/bin/sh\nexit 127\n")
	if err == nil || !strings.Contains(out, "the program does not run here") {
		t.Errorf("a program that ends with 127: %v, %s", err, out)
	}
	left, err := os.ReadDir(filepath.Join(dir, "to"))
	if err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
	if data, err := os.ReadFile(filepath.Join(dir, "to", "evalrun")); err != nil || string(data) != runs {
		t.Errorf("the program that was there is now %q, %v", data, err)
	}
}
