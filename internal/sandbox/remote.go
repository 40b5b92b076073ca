package sandbox

import (
	"cmp"
	"encoding/json"
	"os/exec"
	"syscall"
)

// Remote is a place for processes that shares no files with this machine: a container of a daemon
// that may be elsewhere. The init stays on this machine, and a program here stands for each process
// there.
type Remote interface {
	// Enter makes the place unless it exists, and brings the Binds of the config there. It returns the
	// program that runs a command in it, with its arguments. The program finds the command as a
	// [RemoteCommand] in its environment, ends with the command's exit status, and asks all processes
	// of the place to end when it gets SIGTERM.
	Enter(*Config) (program []string, err error)
	// Leave ends all processes of the place, and brings the Binds that may be written to back. It is
	// called when the process that was started first has ended.
	Leave() error
}

// RemoteVar is the environment variable with the command for the program of a [Remote], as JSON.
const RemoteVar = "EVALRUN_REMOTE_COMMAND"

// RemoteCommand is a command that is run in a [Remote]. User is as in [Config].
type RemoteCommand struct {
	Args, Env []string
	Dir, User string
}

// remoteOrders are the orders for an init that starts its processes in a [Remote].
type remoteOrders struct {
	Program []string
	User    string
}

// remoteCommand makes the program that runs a command in the place of the init.
func (in *initProcess) remoteCommand(args, env []string, dir, user string, leader bool) (*exec.Cmd, error) {
	text, err := json.Marshal(RemoteCommand{Args: args, Env: env, Dir: dir, User: cmp.Or(user, in.Remote.User)})
	if err != nil {
		return nil, err
	}
	program := in.Remote.Program
	return &exec.Cmd{Path: program[0], Args: program, SysProcAttr: &syscall.SysProcAttr{Setpgid: leader},
		Env: []string{in.env()[0], RemoteVar + "=" + string(text)}}, nil // the marker comes first
}
