package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/creack/pty"
	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/internal/testenv"
)

var terminalFiles = map[string]string{
	"set.yaml": `version: "1.0"
id: greetings
name: Greetings
agent: {type: function, command: [sh, agent.sh]}
evaluators: [{id: says, evaluatorTypeId: uipath-contains, evaluatorConfig: {name: says}}]
evaluations:
  - {id: hello, name: Says hello, inputs: {}, evaluationCriterias: {says: {searchText: hello}}}
  - {id: bye, name: Says goodbye to everybody who has come and will not go, inputs: {n: 1}, evaluationCriterias: {says: {searchText: goodbye}}}
  - {id: fault, name: Faults, inputs: {x: fault}, evaluationCriterias: {says: {searchText: hello}}}
  - {id: wait, name: Waits, inputs: {x: wait}, evaluationCriterias: {says: {searchText: hello}}}
`,
	"agent.sh": `case $(cat) in
*'"x":"fault"'*) printf 'first\nlast words\n' >&2; exit 3 ;;
*'"resume":null'*'"x":"wait"'*|*'"x":"wait"'*'"resume":null'*) echo '{"__interrupt__": {"job": {"key": "k"}, "type": "WaitJob"}}' ;;
*) echo '{"content": "hello"}' ;;
esac
`,
	"answer.json": "{}",
}

// screen is what a terminal shows of the bytes that it is sent, with the colours, and every state of
// the line that is drawn again and again.
type screen struct {
	columns int
	lines   []string
	drawn   []string
}

// sgr is the escape sequence of a colour.
var sgr = regexp.MustCompile("\x1b\\[[0-9;]*m")

func newScreen(columns int, sent string) *screen {
	s := &screen{columns: columns}
	for line := range strings.SplitSeq(strings.ReplaceAll(sent, "\r\n", "\n"), "\n") {
		states := strings.Split(line, "\r\x1b[K")
		for _, state := range states {
			if strings.HasPrefix(state, "[") {
				s.drawn = append(s.drawn, state)
			}
		}
		s.lines = append(s.lines, states[len(states)-1])
	}
	return s
}

// P2, and the tables of P1: on a real terminal there is one line that is drawn again, with failures
// above it, and everything fits its width.
func TestTerminal(t *testing.T) {
	testenv.NeedSlow(t)
	for _, c := range []struct {
		columns int
		noColor string
	}{{60, ""}, {60, "1"}, {120, ""}, {120, "1"}} {
		name := fmt.Sprintf("terminal-%d", c.columns)
		if c.noColor == "" {
			name += "-color"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newKillable(t, terminalFiles)
			cmd := exec.Command(k.program, "run", "--wait", "-j", "1", "--failures", "1", "set.yaml")
			cmd.Dir = k.dir
			for _, v := range os.Environ() {
				if name, _, _ := strings.Cut(v, "="); name != "CI" && name != "NO_COLOR" && name != "GITHUB_STEP_SUMMARY" && name != "COLUMNS" {
					cmd.Env = append(cmd.Env, v)
				}
			}
			cmd.Env = append(cmd.Env, "TERM=xterm", "EVALRUN_STORE=", "NO_COLOR="+c.noColor)
			terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: uint16(c.columns)})
			if err != nil {
				t.Fatal(err)
			}
			defer terminal.Close()
			var sent strings.Builder
			delivered := false
			for buf := make([]byte, 4096); ; {
				n, err := terminal.Read(buf)
				sent.Write(buf[:n])
				if err != nil {
					break // EIO: nobody has the other side open any more
				}
				if !delivered && strings.Contains(sent.String(), "waiting: 1 job") {
					delivered = true
					deliver := exec.Command(k.program, "deliver", "external/k", "--payload", "answer.json")
					deliver.Dir, deliver.Env = k.dir, cmd.Env
					if out, err := deliver.CombinedOutput(); err != nil {
						t.Errorf("%v: %s", err, out)
					}
				}
			}
			if err := cmd.Wait(); cmd.ProcessState.ExitCode() != exitFaulted {
				t.Errorf("%v: %s", err, sent.String())
			}
			s := newScreen(c.columns, sent.String())
			s.check(t, c.noColor == "")
			golden(t, name+".txt", s.text())
		})
	}
}

// check looks at every state of the live line.
func (s *screen) check(t *testing.T, color bool) {
	t.Helper()
	form := regexp.MustCompile(`^\[\d/4\]( ✓\d)?( ✗\d)?( ⏸\d)?( ⚠\d)?(  \d running)?(  \d scoring)?(  waiting: 1 job)?(  \d+\.\d/s)?(  \d+ s left)?$`)
	for _, line := range s.drawn {
		plain := sgr.ReplaceAllString(line, "")
		if !form.MatchString(plain) || utf8.RuneCountInString(plain) >= s.columns {
			t.Errorf("the line %q", line)
		}
		if strings.Contains(plain, "2 running") {
			t.Errorf("two agents at -j 1: %q", plain)
		}
		if strings.Contains(plain, "✗") && strings.Contains(line, "\x1b[31m✗1\x1b[0m") != color {
			t.Errorf("colour is %t in %q", !color, line)
		}
	}
	if last := sgr.ReplaceAllString(s.drawn[len(s.drawn)-1], ""); !strings.HasPrefix(last, "[3/4] ✓1 ✗1 ⏸1 ⚠1") && !strings.HasPrefix(last, "[3/4] ✓1 ✗1 ⚠1") && !strings.HasPrefix(last, "[4/4] ✓2 ✗1 ⚠1") {
		t.Errorf("the last line %q", last)
	}
}

// text is what is left on the screen, with the escape of colours made visible and without what is
// another each time.
func (s *screen) text() string {
	above := slices.IndexFunc(s.lines, func(line string) bool { return strings.Contains(line, "passed") })
	slices.Sort(s.lines[:above]) // one agent runs while another is scored
	text := strings.Join(s.lines, "\n")
	text = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}`).ReplaceAllString(text, "$$ID")
	text = regexp.MustCompile(`\b\d\.\ds\b`).ReplaceAllString(text, "0.0s")
	return strings.ReplaceAll(text, "\x1b", "␛")
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", "terminal", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got; write it anew with -update):\n%s", path, diff)
	}
}
