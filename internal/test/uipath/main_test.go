package uipath

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

// program is evalrun, built once for all tests.
var program string

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "agent" {
		if err := replay(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "evalrun-uipath")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	program = filepath.Join(dir, "evalrun")
	return m.Run()
}

// replay is the agent of the eval sets: its input says what spans it leaves and what it answers.
func replay(stdin io.Reader, stdout io.Writer) error {
	var in struct {
		Input struct {
			Output json.RawMessage
			Spans  []json.RawMessage
			Crash  bool
		}
	}
	if err := json.NewDecoder(stdin).Decode(&in); err != nil {
		return err
	}
	var trace []byte
	for _, span := range in.Input.Spans {
		trace = append(append(trace, span...), '\n')
	}
	if err := os.WriteFile(os.Getenv("EVALRUN_TRACE_FILE"), trace, 0o600); err != nil {
		return err
	}
	if in.Input.Crash {
		return errors.New("crash")
	}
	_, err := stdout.Write(in.Input.Output)
	return err
}

// python is the interpreter that has UiPath's package. Without one the test ends here.
func python(t *testing.T) string {
	t.Helper()
	path := os.Getenv("EVALRUN_UIPATH_PYTHON")
	if path == "" {
		path = filepath.Join(".venv", "bin", "python")
	}
	if _, err := exec.LookPath(path); err == nil {
		return path
	}
	message := "UiPath's package is not installed: python3 -m venv internal/test/uipath/.venv && internal/test/uipath/.venv/bin/pip install -r internal/test/uipath/requirements.lock"
	if os.Getenv("EVALRUN_UIPATH") == "required" {
		t.Fatal(message)
	}
	t.Skip(message)
	return ""
}

// reference runs reference.py and decodes what it prints.
func reference(t *testing.T, into any, arguments ...string) {
	t.Helper()
	cmd := exec.Command(python(t), append([]string{"reference.py"}, arguments...)...) //nolint:gosec // our own script
	cmd.Env = append(os.Environ(), "UIPATH_TELEMETRY_ENABLED=false", "PYTHONDONTWRITEBYTECODE=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("reference.py %v: %v", arguments, err)
	}
	if into != nil {
		if err := json.Unmarshal(out, into); err != nil {
			t.Fatal(err)
		}
	}
}

// evalrun runs the program and gives its output; the exit code must be one of those given.
func evalrun(t *testing.T, dir string, codes []int, arguments ...string) []byte {
	t.Helper()
	if _, err := os.Stat(program); err != nil {
		if out, err := exec.Command("go", "build", "-o", program, "github.com/evalrun/evalrun/cmd/evalrun").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	cmd := exec.Command(program, arguments...) //nolint:gosec // our own program
	cmd.Dir = dir
	var stderr tail
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	for _, code := range codes {
		if cmd.ProcessState.ExitCode() == code {
			return out
		}
	}
	t.Fatalf("evalrun %v: exit code %d, want one of %v\n%s", arguments, cmd.ProcessState.ExitCode(), codes, stderr)
	return nil
}

// tail keeps the end of what is written to it.
type tail []byte

func (l *tail) Write(p []byte) (int, error) {
	*l = append(*l, p...)
	*l = (*l)[max(0, len(*l)-4000):]
	return len(p), nil
}

// setting is a number from the environment.
func setting(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}
