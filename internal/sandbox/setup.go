package sandbox

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// Setup runs in a space before the process itself, in this order: the services are started, the
// commands are run one after the other, the addresses are waited for, the healthcheck must succeed.
// All of it ends with the process.
type Setup struct {
	// Services run until the process has ended. One that fails before the process is started fails the
	// setup. Their later output is in Log only.
	Services []SetupCommand
	Commands []SetupCommand
	// WaitFor are addresses (host:port) that must accept a connection, all of them within
	// WaitTimeout; 0 means DefaultWaitTimeout.
	WaitFor     []string
	WaitTimeout time.Duration
	Healthcheck *Healthcheck
	// Log receives the output of services, commands and healthcheck. An error of it ends the process,
	// as with Command.Stdout.
	Log io.Writer `json:"-"`
}

// SetupCommand is a command of a setup.
type SetupCommand struct {
	// Command is a line for the shell; Args, if there are any, are a program and its arguments
	// instead.
	Command string
	Args    []string
	// Dir is the working directory; empty for that of the process. Env is added to the environment of
	// the process.
	Dir string
	Env []string
	// User is the user who runs it in image isolation, as [Config].User; empty for the user of the
	// process. It has no effect if evalrun is not root.
	User string
	// MayFail says that the process is started even if this service ends.
	MayFail bool
	// Timeout bounds the command, or each attempt of a healthcheck; 0 for no limit. Services have
	// none.
	Timeout time.Duration
}

// Healthcheck is a command that is repeated until it succeeds. A failure in the first StartPeriod
// is free, and StartInterval follows it; the first attempt then comes after one StartInterval.
// Later failures are counted, with Interval between them, and as many as Retries fail the setup.
// Zero values mean 5 s for the intervals, 30 s for each attempt and 3 retries.
type Healthcheck struct {
	SetupCommand
	Interval      time.Duration
	StartPeriod   time.Duration
	StartInterval time.Duration
	Retries       int
}

// DefaultWaitTimeout is how long the addresses of a setup may take to accept connections.
const DefaultWaitTimeout = 30 * time.Second

// A Stage is a step of the start of a process.
type Stage string

// The stages, in their order.
const (
	StageSpace       Stage = "space"       // bwrap makes the space
	StageForward     Stage = "forward"     // the forwarded ports, and the sockets that lead in, get listeners
	StageService     Stage = "service"     // services are started
	StageCommand     Stage = "command"     // commands run
	StageWait        Stage = "wait"        // addresses must accept connections
	StageHealthcheck Stage = "healthcheck" // the healthcheck is repeated
	StageMain        Stage = "main"        // the process itself is started
)

// SetupError says why a process was not started in its space. Output and Command may hold secrets
// that the commands were given.
type SetupError struct {
	Stage Stage
	// Command is the command, program or address that failed.
	Command string
	// Output is the end, up to 4 KiB, of the output of the command or of bwrap.
	Output string
	Err    error
}

func (e *SetupError) Error() string {
	switch e.Stage {
	case StageSpace:
		return fmt.Sprintf("make the space for %s: %v", e.Command, e.Err)
	case StageMain:
		return fmt.Sprintf("start %s: %v", e.Command, e.Err)
	case StageForward, StageWait:
		return fmt.Sprintf("%s: %v", e.Command, e.Err)
	case StageCommand:
		return fmt.Sprintf("setup command %q: %v", e.Command, e.Err)
	}
	return fmt.Sprintf("%s %q: %v", e.Stage, e.Command, e.Err)
}

func (e *SetupError) Unwrap() error { return e.Err }

// progress is the report of the init, which sends at most one line.
type progress struct {
	Failed                 *Stage
	Command, Output, Error string
}

// orders are the orders for the init: one JSON document, with nothing behind it until the process
// is to be ended.
type orders struct {
	Path, Dir []byte // not strings, because JSON has no place for bytes that are not UTF-8
	Args, Env []byte // with a NUL between entries
	Grace     time.Duration
	Forwards  []Forward
	Exposes   []Expose
	Spawns    []Spawn
	Setup     *Setup
	Image     *imageOrders // nil unless the root is that of an image
	// Processes is how many processes the space may have; 0 is any number.
	Processes int
	// Alone says that the process is the only one of a container, so that no other process may be left
	// at its end.
	Alone bool
	// Remote says that the processes are started elsewhere; nil if they are not.
	Remote *remoteOrders
}

func (o *orders) args() []string { return strings.Split(string(o.Args), "\x00") }

func (o *orders) env() []string { return strings.Split(string(o.Env), "\x00") }

// initMargin is how long an init may take beyond the grace to end everything.
const initMargin = serviceGrace + time.Second

// supervised is our end of a process that an init starts and ends.
type supervised struct {
	control, progress, log *os.File
	theirs                 []*os.File
	sockets                []string // those that we have made
	endOnce                sync.Once
	ending                 chan struct{}
	ready                  chan struct{} // closed when the process was started, or when err is set
	err                    *SetupError
}

// supervise opens the pipes to an init; theirs become its files from 3 on.
func supervise() (*supervised, error) {
	s := &supervised{ending: make(chan struct{}), ready: make(chan struct{}), theirs: make([]*os.File, 3)}
	var err error
	if s.theirs[0], s.control, err = os.Pipe(); err == nil {
		if s.progress, s.theirs[1], err = os.Pipe(); err == nil {
			s.log, s.theirs[2], err = os.Pipe()
		}
	}
	return s, err
}

// instruct tells the init what to start and, when end is called, to end it. Meanwhile the open pipe
// shows that we live.
func (s *supervised) instruct(o orders) {
	if err := json.NewEncoder(s.control).Encode(o); err != nil {
		return // the init has ended; follow reports it
	}
	<-s.ending
	_, _ = io.WriteString(s.control, "{}\n") // it may have ended meanwhile
}

// end makes the init end the process, its services and itself.
func (s *supervised) end() { s.endOnce.Do(func() { close(s.ending) }) }

// follow reads the result of the start. If the init itself did not come so far, stderr returns the
// messages of bwrap.
func (s *supervised) follow(c *Command, stderr func() string) {
	defer close(s.ready)
	var p progress
	if err := json.NewDecoder(&remainder{s.progress, s.progress, maxRest}).Decode(&p); err != nil {
		said := stderr()
		s.err = &SetupError{Stage: StageSpace, Command: c.Path, Output: said,
			Err: errors.New("ended before the process was started" + lastLine(said) + c.loaderNote())}
		return
	}
	if p.Failed != nil {
		s.err = &SetupError{Stage: *p.Failed, Command: p.Command, Output: p.Output, Err: errors.New(p.Error)}
	}
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	if text == "" {
		return ""
	}
	return ": " + text[strings.LastIndexByte(text, '\n')+1:]
}

func (s *supervised) close() {
	for _, f := range append(s.theirs, s.control, s.progress, s.log) {
		_ = f.Close() // nil or closed already
	}
	for _, socket := range s.sockets {
		_ = os.Remove(socket) // its folder may be gone
	}
}

// orders are the orders for the init of a command.
func (c *Command) orders(grace time.Duration) orders {
	o := orders{Path: []byte(c.Path), Dir: []byte(c.Dir), Grace: grace, Setup: c.Setup,
		Args: []byte(strings.Join(c.Args, "\x00")), Env: []byte(strings.Join(c.Env, "\x00"))}
	if c.Config != nil {
		for i, f := range c.Config.Forwards {
			if c.Config.Contained() {
				f.Socket = c.Config.forwardFile(i)
			} else if c.Config.Isolated() {
				f.Socket = insideSocket(i)
			}
			o.Forwards = append(o.Forwards, f)
		}
		o.Exposes, o.Processes = c.Config.Exposes, c.Config.processLimit()
		switch {
		case c.Config.IsRemote():
			o.Remote = &remoteOrders{RemoteProgram: c.remote, User: c.Config.User}
		case c.Config.Contained():
			o.Image, o.Alone = &imageOrders{User: c.Config.User, Own: c.Config.Own, Switch: true}, !c.Shared
		case c.Config.Isolation == IsolationImage:
			o.Image = &imageOrders{User: c.Config.User, Own: c.Config.Own, Switch: os.Geteuid() == 0}
		}
		for _, s := range c.Config.Spawns {
			s.Grace = cmp.Or(s.Grace, DefaultGrace)
			o.Spawns = append(o.Spawns, s)
		}
	}
	return o
}
