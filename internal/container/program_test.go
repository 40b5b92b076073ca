package container

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/container/inside"
)

// Given a checkout and Go, then the program for containers of either architecture is built: static, and
// no larger than a few MB.
func TestProgramOfACheckout(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("without go on PATH nothing is built")
	}
	for _, arch := range []string{"amd64", "arm64"} {
		at, err := new(programs).find(filepath.Join(t.TempDir(), "evalrun"), "linux/"+arch)
		if err != nil {
			t.Fatal(err)
		}
		if err := checkProgram(at, arch); err != nil {
			t.Error(err)
		}
		if info, err := os.Stat(at); err != nil || info.Size() > 10<<20 || info.Mode()&0o111 == 0 {
			t.Errorf("%v, %v", info, err)
		}
	}
}

// The program of a release is found beside evalrun, in inside/ and in share/evalrun. One for another
// architecture, or with a C library, or of another version, is refused where its name says that it is the right one.
func TestProgramOfARelease(t *testing.T) {
	t.Parallel()
	const name = "evalrun-inside_linux_arm64"
	for _, place := range []string{".", "inside", "../share/evalrun"} {
		bin := filepath.Join(t.TempDir(), "bin")
		at := filepath.Join(bin, place, name)
		writeProgram(t, at, 183, false, inside.Source)
		if got, err := new(programs).find(filepath.Join(bin, "evalrun"), "linux/arm64"); got != at {
			t.Errorf("got %q, want %q: %v", got, at, err)
		}
	}
	for says, c := range map[string]struct {
		machine byte
		dynamic bool
		source  string
	}{
		"it is a program for EM_X86_64":              {62, false, inside.Source},
		"build it with CGO_ENABLED=0":                {183, true, inside.Source},
		"it is of another version than this evalrun": {183, false, inside.Source[1:]},
	} {
		bin := t.TempDir()
		writeProgram(t, filepath.Join(bin, name), c.machine, c.dynamic, c.source)
		if got, err := new(programs).find(filepath.Join(bin, "evalrun"), "linux/arm64"); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got %q, %v, want %q", got, err, says)
		}
	}
	if _, err := new(programs).find("", "linux/riscv64"); err == nil || !strings.Contains(err.Error(), "linux/amd64 and linux/arm64 only") {
		t.Errorf("another architecture: %v", err)
	}
}

// writeProgram writes the head of a program for a machine of ELF, with a loader if it is dynamic, and its source.
func writeProgram(t *testing.T, at string, machine byte, dynamic bool, source string) {
	t.Helper()
	b := make([]byte, 64+56)
	copy(b, "\x7fELF\x02\x01\x01")
	b[16], b[18], b[20] = 2, machine, 1         // an executable, its machine, the version
	b[32], b[52], b[54], b[58] = 64, 64, 56, 64 // where the program headers are, and sizes
	if dynamic {
		b[56], b[64] = 1, 3 // one program header: PT_INTERP
	}
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(at, append(b, source...), 0o755); err != nil {
		t.Fatal(err)
	}
}
