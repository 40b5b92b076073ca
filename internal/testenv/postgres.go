package testenv

import (
	"bufio"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// PostgresServer is a PostgreSQL server of one test, which it may end and start again.
type PostgresServer struct {
	// URL is that of a database of the server.
	URL   string
	crash string
}

// StartPostgres starts a server for a test, where there is PostgreSQL. The server ends with the test,
// also if the test is killed.
func StartPostgres(t testing.TB) *PostgresServer {
	t.Helper()
	PostgresURL(t)
	cmd := exec.Command(filepath.Join(Top(t), ".ci", "postgres"), "sh", "-c",
		`echo "$EVALRUN_POSTGRES $EVALRUN_POSTGRES_CRASH"; exec cat >/dev/null`)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	url, crash, told := strings.Cut(strings.TrimSpace(line), " ")
	if err != nil || !told {
		t.Fatalf("the server does not start: %v\n%s", err, stderr.String())
	}
	return &PostgresServer{url, crash}
}

// Crash ends the server as a crash does, and starts it again.
func (s *PostgresServer) Crash() error {
	out, err := exec.Command(s.crash).CombinedOutput()
	if err != nil {
		return &crashError{string(out), err}
	}
	return nil
}

type crashError struct {
	out string
	err error
}

func (e *crashError) Error() string { return e.err.Error() + "\n" + e.out }
func (e *crashError) Unwrap() error { return e.err }
