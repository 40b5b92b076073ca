package exec

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/evalrun/evalrun/internal/wait"
)

// The test binary is also the program that the exec source starts: as "job-supervisor FOLDER" it is
// a supervisor, and as "test-start OPTIONS JOB" an evalrun that starts one job. Either stops
// itself at the step that stopAt names, to be killed there.
const (
	stopAt     = "TRIGGER_TEST_STOP_AT"
	stopSocket = "TRIGGER_TEST_STOP_SOCKET"
)

func TestMain(m *testing.M) {
	if len(os.Args) < 3 {
		os.Exit(m.Run())
	}
	switch os.Args[1] {
	case supervisorCommand:
		step = stopHere
		os.Exit(SuperviseMain(os.Args[2]))
	case "test-start":
		step = stopHere
		if err := startOne(os.Args[2], os.Args[3]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func stopHere(name string) {
	if os.Getenv(stopAt) != name {
		return
	}
	resumed := make(chan os.Signal, 1)
	signal.Notify(resumed, syscall.SIGCONT)
	c, err := net.Dial("unixgram", os.Getenv(stopSocket))
	if err == nil {
		_, err = fmt.Fprintf(c, "%s %d", name, os.Getpid())
	}
	if err != nil {
		panic(err)
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	<-resumed // this thread may be the last to be stopped
}

// startOptions are what "test-start" is given: [wait.Env] without its functions, and the configuration.
type startOptions struct {
	BaseDir, StoreDir, Executable string
	Config                        Config
}

func startOne(options, job string) error {
	var o startOptions
	var j wait.Job
	if err := json.Unmarshal([]byte(options), &o); err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(job), &j); err != nil {
		return err
	}
	source := New(wait.Env{BaseDir: o.BaseDir, StoreDir: o.StoreDir, Executable: o.Executable}, o.Config)
	_, err := source.Start(context.Background(), j)
	return err
}
