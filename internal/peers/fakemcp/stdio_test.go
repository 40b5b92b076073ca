package fakemcp

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/evalrun/evalrun/internal/testenv"
)

// asServer makes this test binary the server on stdio.
const asServer = "PROBE_TOOLS_AS_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(asServer) != "" {
		if err := StdioMain(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// stdioServer is a server on stdio, and the file of its log.
func stdioServer(t *testing.T, marker string) (*exec.Cmd, string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "log.jsonl")
	cmd := exec.Command(os.Args[0], StdioArgs(file, marker)...)
	cmd.Env = append(os.Environ(), asServer+"=1")
	cmd.Stderr = t.Output()
	return cmd, file
}

// A signal and the end of stdin end the server on stdio even while a call runs, and the log says
// so; kill leaves the log as it is.
func TestHowTheServerOnStdioEnds(t *testing.T) {
	for how, want := range map[string]string{"SIGTERM": "terminated", "SIGKILL": "", "EOF": ""} {
		t.Run(how, func(t *testing.T) {
			cmd, file := stdioServer(t, "m")
			stdin, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = cmd.Process.Kill() })
			for _, m := range []string{
				`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`,
				`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
				`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"wait","arguments":{"ms":3600000}}}`,
			} {
				if _, err := fmt.Fprintln(stdin, m); err != nil {
					t.Fatal(err)
				}
			}
			if !testenv.Eventually(func() bool {
				log, err := ReadLog(file)
				return err == nil && has("tools/call", WaitTool, false, false)(log)
			}) {
				t.Fatal("it does not wait")
			}
			switch how {
			case "EOF":
				stdin.Close()
			case "SIGTERM":
				_ = cmd.Process.Signal(syscall.SIGTERM)
			case "SIGKILL":
				_ = cmd.Process.Kill()
			}
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			err = testenv.Receive(t, ended, "its end")
			log, rerr := ReadLog(file)
			if rerr != nil {
				t.Fatal(rerr)
			}
			last := log[len(log)-1]
			if how == "SIGKILL" {
				if last.Method == MethodEnd {
					t.Errorf("got %+v", last)
				}
			} else if err != nil || last.Method != MethodEnd || !strings.Contains(last.Error, want) {
				t.Errorf("got %v, %+v", err, last)
			}
		})
	}
}

func TestWrongArguments(t *testing.T) {
	for _, args := range [][]string{nil, {"-log", "x"}, {"-marker", "x"}, {"-log", "x", "-marker", "y", "z"}, {"-other"}} {
		if err := StdioMain(args); err == nil {
			t.Errorf("%q was accepted", args)
		}
	}
	if err := StdioMain(StdioArgs(filepath.Join(t.TempDir(), "none", "log"), "m")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestReadLogOfAKilledServer(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	for text, want := range map[string]int{"": 0, `{"method":"a"`: 0, "{\"method\":\"a\"}\n{\"meth": 1, "{\"method\":\"a\"}\n{\"method\":\"b\"}\n": 2, "{\n": -1} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		log, err := ReadLog(file)
		if (err != nil) != (want < 0) || err == nil && len(log) != want {
			t.Errorf("%q: got %v, %v", text, log, err)
		}
	}
}
