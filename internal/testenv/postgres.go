package testenv

import (
	"bufio"
	neturl "net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// PostgresServer is a PostgreSQL server of one test, which it may end and start again.
type PostgresServer struct {
	// URL is that of a database of the server, and Local the same over a socket of this machine.
	URL, Local string
	crash      string
}

// StartPostgres starts a server for a test, where there is PostgreSQL. The server ends with the test,
// also if the test is killed.
func StartPostgres(t testing.TB) *PostgresServer {
	t.Helper()
	PostgresURL(t)
	return StartPostgresIn(t, "", (*exec.Cmd).Start)
}

// StartPostgresIn starts a server for a test by a function, which may do so in another network. It listens
// on an address there, such as 10.1.2.3/24, for everybody of that network; without one on loopback.
func StartPostgresIn(t testing.TB, address string, start func(*exec.Cmd) error) *PostgresServer {
	t.Helper()
	cmd := exec.Command(filepath.Join(Top(t), ".ci", "postgres"), "sh", "-c",
		`echo "$EVALRUN_POSTGRES $EVALRUN_POSTGRES_CRASH"; exec cat >/dev/null`)
	cmd.Env = append(os.Environ(), "EVALRUN_POSTGRES_NETWORK="+address)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = start(cmd)
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
	at, err := neturl.Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	options := neturl.Values{"host": {filepath.Dir(crash)}, "port": {at.Port()}, "sslmode": {"disable"}}
	return &PostgresServer{url, "postgres://" + at.User.String() + "@" + at.Path + "?" + options.Encode(), crash}
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
