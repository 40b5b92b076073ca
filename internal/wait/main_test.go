package wait

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"
	"testing"
)

// The test binary is also the program that the exec source starts: as "job-supervisor FOLDER" it is
// a supervisor, and as "test-start OPTIONS PENDING" an evalrun that starts one job. Either stops
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

func startOne(options, pending string) error {
	var o Options
	var p Job
	if err := json.Unmarshal([]byte(options), &o); err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(pending), &p); err != nil {
		return err
	}
	src, err := NewSources(o).For("exec", p.Spec)
	if err != nil {
		return err
	}
	_, err = src.Start(context.Background(), p)
	return err
}
