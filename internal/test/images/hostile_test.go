package images

import (
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/testenv"
)

// Given an agent that tries whatever could lead out of its image, then it reads nothing of this
// machine, reaches nothing of it, leaves nothing running, and gets no reward that the tests do not
// give.
func TestNothingLeadsOut(t *testing.T) {
	inAll(t, func(t *testing.T, w way) {
		config := plain + "artifacts = [\"/tmp/report\"]\n[agent]\nnetwork_mode = \"no-network\"\n"
		if w.bare() {
			config += "[verifier]\nnetwork_mode = \"no-network\"\n"
		}
		k := newTask(t, w, config, "COPY hostile /hostile\nWORKDIR /app\n", "", "")
		build := exec.Command("go", "build", "-ldflags=-s -w", "-o", k.path("environment/hostile"), "./testdata/hostile")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		// Half a word each, so that no file has it which says what is tried.
		const first, second = "known-only", "-outside"
		word := first + second
		private := filepath.Join(k.dir, "private.txt")
		if err := os.WriteFile(private, []byte(word), 0o600); err != nil {
			t.Fatal(err)
		}
		k.env = append(k.env, "PRIVATE="+word)
		k.write("tests/test.sh", "# "+word+"\necho 0 >/logs/verifier/reward.txt\n")
		k.write("solution/solve.sh", "# "+word+"\n")

		tcp, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tcp.Close() })
		name := fmt.Sprintf("evalrun-test-%d-%s", os.Getpid(), strings.ReplaceAll(string(w), " ", "-"))
		abstract, err := net.Listen("unix", "@"+name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = abstract.Close() })
		outside := exec.Command("sleep", "1000")
		outside.Args[0] = "sleep-" + word
		if err := outside.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = outside.Process.Kill(), outside.Wait() })

		k.write("instruction.md", fmt.Sprintf(`[[RUN /hostile %[1]s %[2]s %[3]s %[4]s %[5]s >/tmp/report 2>&1; cat /tmp/report]] [[REQUEST fs/read_text_file {"path":"%[1]s"}]] `+
			`[[REQUEST fs/read_text_file {"path":"/app/root%[1]s"}]] [[REQUEST fs/write_text_file {"path":"%[1]s","content":"overwritten"}]] [[SAY done]]`+"\n", private, first, second, tcp.Addr(), name))
		k.write("../agent.json", `{"name": "a", "type": "acp", "command": ["acp-agent"]}`)
		out := k.evalrun(0, "run", "--isolation", k.isolation, "--keep-workspaces", "-o", "results.json", "--agent", "agent.json", "task")
		if r := k.results(); r.Score == nil || *r.Score != 0 || r.Isolation != k.isolation {
			t.Errorf("%+v\n%s", r, out)
		}
		reports, _ := filepath.Glob(filepath.Join(k.dir, ".evalrun/runs/*/rollouts/*/artifacts/tmp/report"))
		if len(reports) != 1 {
			t.Fatalf("the report is %v\n%s", reports, out)
		}
		report := testenv.ReadFile(t, reports[0])
		if w == asDocker { // root of a container may do this there, and it leads nowhere
			for _, own := range []string{"the first process can be traced", "mem of the first process can be written"} {
				report = strings.ReplaceAll(report, "ESCAPED: "+own+"\n", "")
			}
		}
		if report != "tried everything\n" {
			t.Errorf("%s:\n%s", w, report)
		}
		if got := testenv.ReadFile(t, private); got != word {
			t.Errorf("the private file was made %q", got)
		}
		k.noWord(word)
		k.noProcess("sleep\x0088123")
	})
}

// noWord checks that what only this machine knows is in no file that evalrun has kept.
func (k *task) noWord(word string) {
	k.t.Helper()
	_ = filepath.WalkDir(filepath.Join(k.dir, ".evalrun", "runs"), func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || strings.Contains(path, "/plan/") {
			return nil
		}
		if text, err := os.ReadFile(path); err == nil && strings.Contains(string(text), word) {
			k.t.Errorf("%s has what only outside is known", path)
		}
		return nil
	})
}

// noProcess checks that no process of this machine has this in its command line. Those of another
// test may still be ending.
func (k *task) noProcess(part string) {
	k.t.Helper()
	left := func() (found []string) {
		files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, file := range files {
			if line, _ := os.ReadFile(file); strings.Contains(string(line), part) {
				found = append(found, file)
			}
		}
		return found
	}
	if !testenv.Eventually(func() bool { return len(left()) == 0 }) {
		k.t.Errorf("processes are left: %v", left())
	}
}
