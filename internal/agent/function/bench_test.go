package function

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/agent"
)

// BenchmarkRun compares a segment of a trivial static program with the same program under os/exec
// alone. cpu-ns/op is our own CPU time, without the program's; the design allows 0.3 ms above
// os/exec.
func BenchmarkRun(b *testing.B) {
	program := buildStatic(b)
	b.Run("exec", func(b *testing.B) {
		measure(b, func() {
			cmd := exec.Command(program)
			cmd.Stdin = strings.NewReader(`{"q":1}`)
			if out, err := cmd.Output(); err != nil || string(out) != "{}\n" {
				b.Fatal(string(out), err)
			}
		})
	})
	b.Run("agent", func(b *testing.B) {
		a := New(FromCommand([]string{program}), agent.Options{})
		seg := segment(b)
		i := 0
		measure(b, func() {
			i++
			seg.RolloutID = fmt.Sprint("rollout-", i)
			if out, err := a.Run(b.Context(), seg); err != nil || string(out.Output) != "{}" {
				b.Fatal(out, err)
			}
		})
	})
}

func measure(b *testing.B, f func()) {
	before := ownCPU(b)
	for b.Loop() {
		f()
	}
	b.ReportMetric(float64(ownCPU(b)-before)/float64(b.N), "cpu-ns/op")
}

func ownCPU(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// buildStatic builds a program that does nothing but print a document.
func buildStatic(b *testing.B) string {
	cc, err := exec.LookPath("cc")
	if err != nil {
		b.Skip("needs a C compiler: a Go program takes longer to start than what is measured")
	}
	source := filepath.Join(b.TempDir(), "agent.c")
	if err := os.WriteFile(source, []byte("#include <unistd.h>\nint main(void) { return write(1, \"{}\\n\", 3) != 3; }\n"), 0o600); err != nil {
		b.Fatal(err)
	}
	program := strings.TrimSuffix(source, ".c")
	if out, err := exec.Command(cc, "-O2", "-static", "-o", program, source).CombinedOutput(); err != nil {
		b.Skipf("%v: %s", err, out)
	}
	return program
}
