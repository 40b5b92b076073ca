package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

// initCommand is the hidden command that makes evalrun an init.
const initCommand = "sandbox-init"

const (
	// serviceGrace is how long services may take to end when the process has ended.
	serviceGrace = time.Second
	// initFailed is the exit status of an init that could not start the process.
	initFailed = 125
)

// InitMain must be called first in main and TestMain of a program that is given as
// [Command].Executable. If this process was started as the init of a space, InitMain runs the init
// and does not return. The same holds for the process that mounts the root of a space, for the
// first process of a container, and for the process that stands here for one in a container.
//
// The init gets its orders through file descriptor 3, answers on 4, and writes the output of what
// it starts beside the process to 5. From 6 on are the sockets that lead into the space. Inside
// bwrap it is process 1. It has a process group for itself and what the setup starts, and gives the
// process, and each program of a Spawn, a group of its own.
func InitMain() {
	switch {
	case len(os.Args) == 3 && os.Args[1] == rootCommand:
		rootMain(os.Args[2])
	case len(os.Args) == 4 && os.Args[1] == visitCommand:
		os.Exit(visit(os.Args[2:]))
	case len(os.Args) == 2 && os.Args[1] == holdCommand:
		os.Exit(hold())
	}
	if len(os.Args) != 2 || os.Args[1] != initCommand {
		return
	}
	closeOnExec()
	guardInit()
	files := make([]*os.File, 3)
	for i, name := range []string{"control", "progress", "log"} {
		files[i] = os.NewFile(uintptr(3+i), name)
	}
	in := &initProcess{log: files[2], children: newChildren(), visits: visits{over: make(chan struct{})}}
	control := json.NewDecoder(files[0])
	if err := control.Decode(&in.orders); err != nil {
		fmt.Fprintln(os.Stderr, "evalrun", initCommand+": this is for evalrun's own use:", err)
		os.Exit(initFailed)
	}
	terminated := make(chan os.Signal, 1)
	// This comes before anything is started, because endServices must not end the init.
	signal.Notify(terminated, syscall.SIGTERM, syscall.SIGINT)
	ctx, cancel := context.WithCancelCause(context.Background())
	go in.obey(control, terminated, cancel)
	os.Exit(in.run(ctx, json.NewEncoder(files[1])))
}

// closeOnExec keeps all files but the first three from the processes that the init starts, also
// those that evalrun has inherited open.
func closeOnExec() {
	open, _ := os.ReadDir("/dev/fd") // it is there on every system we build for
	for _, e := range open {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
}

// service is a service of the setup that was started.
type service struct {
	*child
	out *captured
}

// errTold ends the context of an init.
var errTold = errors.New("it was told to end")

type initProcess struct {
	orders
	*children
	log      *os.File
	services []service
	visits   visits
}

// obey waits for the order to end. If evalrun is gone instead, everything ends at once.
func (in *initProcess) obey(control *json.Decoder, terminated <-chan os.Signal, cancel context.CancelCauseFunc) {
	go func() {
		<-terminated
		cancel(errTold)
	}()
	var word struct{}
	for control.Decode(&word) == nil {
		cancel(errTold)
	}
	in.killAll()
}

// run is the life of the init; it returns the exit status.
func (in *initProcess) run(ctx context.Context, answer *json.Encoder) int {
	main, failed := in.begin(ctx)
	if failed != nil {
		// Nobody misses an answer that nobody takes: evalrun is gone.
		_ = answer.Encode(progress{
			Failed: &failed.Stage, Command: failed.Command, Output: failed.Output, Error: failed.Err.Error(),
		})
		in.endServices()
		in.endOthers()
		return initFailed
	}
	_ = answer.Encode(progress{})
	status := in.await(ctx, main)
	in.endServices()
	in.endOthers()
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

// begin goes through the stages until the process has been started.
func (in *initProcess) begin(ctx context.Context) (*child, *SetupError) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	main, failed := in.stages(ctx, cancel)
	var sooner *SetupError // the end of a service is why a later stage failed
	if failed != nil && errors.As(context.Cause(ctx), &sooner) {
		return nil, sooner
	}
	return main, failed
}

func (in *initProcess) stages(ctx context.Context, cancel context.CancelCauseFunc) (*child, *SetupError) {
	if err := errors.Join(limitProcesses(in.Processes), in.prepareImage()); err != nil {
		return nil, &SetupError{Stage: StageSpace, Command: string(in.Path), Err: err}
	}
	for _, f := range in.Forwards { // a Remote has its own
		if in.Remote != nil {
			break
		}
		if err := forward(f); err != nil {
			return nil, &SetupError{Stage: StageForward, Command: fmt.Sprintf("forward port %d", f.Port), Err: err}
		}
	}
	if in.Setup != nil {
		if failed := in.setUp(ctx, cancel); failed != nil {
			return nil, failed
		}
	}
	if failed := in.admit(); failed != nil {
		return nil, failed
	}
	main, err := in.startMain(ctx)
	if err != nil {
		return nil, &SetupError{Stage: StageMain, Command: string(in.Path), Err: namingLoader(string(in.Path), err)}
	}
	return main, nil
}

func (in *initProcess) startMain(ctx context.Context) (*child, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if in.Remote != nil {
		args := append([]string{string(in.Path)}, in.args()[1:]...)
		cmd, err := in.remoteCommand(args, in.env(), string(in.Dir), "", true, "")
		if err != nil {
			return nil, err
		}
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		return in.start(cmd)
	}
	path, err := lookPath(string(in.Path), in.env())
	if err != nil {
		return nil, err
	}
	cmd := &exec.Cmd{Path: path, Args: in.args(), Dir: string(in.Dir),
		Env: in.env(), Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true}}
	if err := in.become(cmd, ""); err != nil {
		return nil, err
	}
	return in.start(cmd)
}

// await waits for the end of the process. When told to end it, it does what evalrun does where
// there is no init.
func (in *initProcess) await(ctx context.Context, main *child) syscall.WaitStatus {
	select {
	case <-main.ended:
	case <-ctx.Done():
		signalGroup(main.pid, syscall.SIGTERM)
		timer := time.NewTimer(in.Grace)
		defer timer.Stop()
		select {
		case <-main.ended:
		case <-timer.C:
		}
	}
	signalGroup(main.pid, syscall.SIGKILL)
	<-main.ended
	return main.status
}

// endServices ends the programs of connections. It ends what the setup has left running, as far as
// that is in the group of the init. The rest ends with the space or by its marker.
func (in *initProcess) endServices() {
	defer in.killGroups()
	gone := in.visits.dismiss()
	_ = syscall.Kill(0, syscall.SIGTERM) // the init gets it too, and ignores it by now
	timer := time.NewTimer(serviceGrace)
	defer timer.Stop()
	for _, s := range in.services {
		select {
		case <-s.ended:
			s.out.settle()
		case <-timer.C:
			return
		}
	}
	select {
	case <-gone:
	case <-timer.C:
	}
}

// killAll ends everything, the init included.
func (in *initProcess) killAll() {
	in.killGroups()
	in.endOthers()
	_ = syscall.Kill(0, syscall.SIGKILL)
	os.Exit(128 + int(syscall.SIGKILL)) // process 1 cannot be killed from inside, and ends the space this way
}

// endOthers ends the other processes of a container. If the init is the first process, its own end
// does that.
func (in *initProcess) endOthers() {
	if in.Alone {
		killOthers()
	}
}

// forward leads a port of the loopback to a socket, for as long as the init lives.
func forward(f Forward) error {
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", f.Port))
	if err != nil {
		return err
	}
	go func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return // out of files: the agent will report that its connections are refused
			}
			go join(in.(*net.TCPConn), func() (net.Conn, error) { return net.Dial("unix", f.Socket) })
		}
	}()
	return nil
}

// duplex is a connection whose directions end independently.
type duplex interface {
	net.Conn
	CloseWrite() error
}

// join copies both ways until both sides have ended. Each end is passed on by itself: a request may
// be over long before its answer is.
func join(in duplex, dial func() (net.Conn, error)) {
	defer func() { _ = in.Close() }()
	c, err := dial()
	if err != nil {
		return // the client sees a connection that is closed at once
	}
	out := c.(duplex)
	defer func() { _ = out.Close() }()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = io.Copy(out, in) // an error ends this direction, as an end does
		_ = out.CloseWrite()
	}()
	_, _ = io.Copy(in, out)
	_ = in.CloseWrite()
	<-sent
}
