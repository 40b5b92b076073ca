package sandbox

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"os/exec"
	"slices"
	"strconv"
	"syscall"
)

// Remote is a place for processes that shares no files with this machine: a container of a daemon
// that may be elsewhere. The init stays on this machine, and a program here stands for each process
// there.
type Remote interface {
	// Enter makes the place unless it exists, brings the Binds of the config there, and opens its
	// Forwards, which it keeps open until Leave.
	Enter(*Config) (RemoteProgram, error)
	// Leave ends all processes of the place, and brings the Binds that may be written to back. It is
	// called when the process that was started first has ended.
	Leave() error
	// MemoryNote is for [Exit.MemoryNote]; empty unless the system has ended processes for want of memory before Leave.
	MemoryNote() string
}

// LostError is the error of Leave if the place has gone before its processes were ended, so that what they
// did at last may come from that.
type LostError struct{ Err error }

func (e *LostError) Error() string { return e.Err.Error() }
func (e *LostError) Unwrap() error { return e.Err }

// RemoteProgram says how commands are run in a [Remote].
type RemoteProgram struct {
	// Command is the program of this machine that stands for a command there, with its arguments. It
	// finds the command as a [RemoteCommand] in its environment, and ends with the command's exit
	// status. At SIGTERM it asks the processes of the command to end, or all of the place.
	Command []string
	// Env are variables of Command, beside those that evalrun gives it.
	Env []string
	// Connect is the program in the place that connects its stdin and stdout with a port of the
	// loopback, and Await the one that waits until an address accepts a connection. Port and address
	// are their last arguments.
	Connect, Await []string
}

// RemoteVar is the environment variable with the command for the program of a [Remote], as JSON.
const RemoteVar = "EVALRUN_REMOTE_COMMAND"

// ScopeVar is the environment variable of the processes that are ended together in a [Remote].
const ScopeVar = "EVALRUN_SCOPE"

// RemoteCommand is a command that is run in a [Remote]. User is as in [Config].
type RemoteCommand struct {
	Args, Env []string
	Dir, User string
	// Scope is the value of ScopeVar of the processes that SIGTERM is for; empty for all of the place.
	Scope string
}

// newScope returns a scope that no other processes have.
func newScope() string { return rand.Text() }

// remoteOrders are the orders for an init that starts its processes in a [Remote].
type remoteOrders struct {
	RemoteProgram
	User string
}

// visit is the program that leads a connection to a port of the place.
func (o *remoteOrders) visit(port int) Spawn {
	return Spawn{Command: SetupCommand{Args: append(slices.Clone(o.Connect), strconv.Itoa(port))}, Grace: DefaultGrace}
}

// remoteCommand makes the program that runs a command in the place of the init.
func (in *initProcess) remoteCommand(args, env []string, dir, user string, leader bool, scope string) (*exec.Cmd, error) {
	if scope != "" {
		env = append(slices.Clone(env), ScopeVar+"="+scope)
	}
	text, err := json.Marshal(RemoteCommand{Args: args, Env: env, Dir: dir, User: cmp.Or(user, in.Remote.User), Scope: scope})
	if err != nil {
		return nil, err
	}
	program := in.Remote.Command
	return &exec.Cmd{Path: program[0], Args: program, SysProcAttr: &syscall.SysProcAttr{Setpgid: leader},
		Env: slices.Concat(in.env()[:1], in.Remote.Env, []string{RemoteVar + "=" + string(text)})}, nil // the marker comes first
}
