package acp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

const (
	// DefaultMaxOutput is the most output that is kept of a terminal, whatever the agent asks for.
	DefaultMaxOutput = 1 << 20
	// maxTerminals is how many terminals an agent may hold at once.
	maxTerminals = 64
)

// TerminalCommand is a command that an agent wants to be run.
type TerminalCommand struct {
	Command string
	Args    []string
	Env     []KeyValue // to be added to the environment that the process gets
	Cwd     string
	// Output takes the stdout and stderr of the process, in any number of writes,
	// concurrent ones included.
	Output io.Writer
}

// TerminalProcess is a running command.
type TerminalProcess interface {
	// Wait waits for the end of the process and of its output. It is called once.
	Wait() TerminalExit
	// Kill ends the process and all that it has started. It may come at any time, more than once, also
	// after the end.
	Kill() error
}

// TerminalExit is how a process ended: Code, or else the name of the signal.
type TerminalExit struct {
	Code   *int    `json:"exitCode"`
	Signal *string `json:"signal"`
}

// TerminalsOptions are the settings of Terminals.
type TerminalsOptions struct {
	// Start starts a command. Its error is told to the agent.
	Start func(TerminalCommand) (TerminalProcess, error)
	// Roots are the folders in which commands may start. The first is for those that name none.
	Roots []Root
	// MaxOutput is how many bytes of output are kept of each terminal; 0 means DefaultMaxOutput.
	MaxOutput int
}

// Terminals serves terminal/*. The caller decides where the processes live.
type Terminals struct {
	opts    TerminalsOptions
	roots   roots
	running sync.WaitGroup

	mu     sync.Mutex
	closed bool
	last   int
	open   map[string]*terminal
}

type terminal struct {
	process TerminalProcess
	output  *tail
	ended   chan struct{}
	exit    TerminalExit // once ended is closed
}

// NewTerminals opens the folders. End it with [Terminals.Close].
func NewTerminals(o TerminalsOptions) (*Terminals, error) {
	if o.MaxOutput == 0 {
		o.MaxOutput = DefaultMaxOutput
	}
	if len(o.Roots) == 0 {
		return nil, errors.New("terminals need a folder to start in")
	}
	opened, err := openRoots(o.Roots)
	if err != nil {
		return nil, err
	}
	return &Terminals{opts: o, roots: opened, open: map[string]*terminal{}}, nil
}

// Close ends every process that was started, waits for them, and lets none be started any more.
func (t *Terminals) Close() error {
	t.mu.Lock()
	t.closed = true
	open := t.open
	t.open = map[string]*terminal{}
	t.mu.Unlock()
	var err error
	for _, term := range open {
		err = errors.Join(err, term.process.Kill())
	}
	t.running.Wait()
	return errors.Join(err, t.roots.close())
}

// Running reports whether a process has not ended.
func (t *Terminals) Running() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, term := range t.open {
		select {
		case <-term.ended:
		default:
			return true
		}
	}
	return false
}

type createTerminal struct {
	Command string     `json:"command"`
	Args    []string   `json:"args"`
	Env     []KeyValue `json:"env"`
	Cwd     *string    `json:"cwd"`
	Limit   *int       `json:"outputByteLimit"`
}

type terminalID struct {
	ID string `json:"terminalId"`
}

func (t *Terminals) create(_ context.Context, p createTerminal) (any, error) {
	if p.Command == "" {
		return nil, invalidParams("command is missing")
	}
	cwd := t.opts.Roots[0].Path
	if p.Cwd != nil {
		cwd = *p.Cwd
	}
	root, name, err := t.roots.find(cwd)
	if err != nil {
		return nil, err
	}
	if info, err := root.Stat(name); err != nil {
		return nil, invalidParams(cwd + ": " + reason(err))
	} else if !info.IsDir() {
		return nil, invalidParams(cwd + " is not a folder")
	}
	output := &tail{limit: t.opts.MaxOutput}
	if p.Limit != nil && *p.Limit >= 0 {
		output.limit = min(output.limit, *p.Limit)
	}

	// Held while the command starts, so that Close knows of all there are.
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, &rpcError{CodeInternal, "no terminal can be started any more"}
	}
	if len(t.open) >= maxTerminals {
		return nil, &rpcError{CodeInternal, fmt.Sprintf("%d terminals are open; release some", maxTerminals)}
	}
	process, err := t.opts.Start(TerminalCommand{p.Command, p.Args, p.Env, cwd, output})
	if err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", p.Command, err)
	}
	term := &terminal{process: process, output: output, ended: make(chan struct{})}
	t.running.Go(func() {
		term.exit = process.Wait()
		close(term.ended)
	})
	t.last++
	id := "term-" + strconv.Itoa(t.last)
	t.open[id] = term
	return terminalID{id}, nil
}

func (t *Terminals) output(_ context.Context, p terminalID) (any, error) {
	term, err := t.find(p)
	if err != nil {
		return nil, err
	}
	var result struct {
		Output    string        `json:"output"`
		Truncated bool          `json:"truncated"`
		Exit      *TerminalExit `json:"exitStatus"`
	}
	select {
	case <-term.ended: // looked at first, so that the output of a process that ended is all of it
		result.Exit = &term.exit
	default:
	}
	result.Output, result.Truncated = term.output.text()
	return result, nil
}

func (t *Terminals) waitForExit(ctx context.Context, p terminalID) (any, error) {
	term, err := t.find(p)
	if err != nil {
		return nil, err
	}
	select {
	case <-term.ended:
		return term.exit, nil
	case <-ctx.Done():
		return nil, &rpcError{CodeCancelled, "cancelled"}
	}
}

func (t *Terminals) kill(_ context.Context, p terminalID) (any, error) {
	term, err := t.find(p)
	if err != nil {
		return nil, err
	}
	return struct{}{}, term.process.Kill()
}

func (t *Terminals) release(_ context.Context, p terminalID) (any, error) {
	term, err := t.find(p)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	delete(t.open, p.ID)
	t.mu.Unlock()
	return struct{}{}, term.process.Kill()
}

func (t *Terminals) find(p terminalID) (*terminal, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	term := t.open[p.ID]
	if term == nil {
		return nil, &rpcError{CodeResourceMissing, fmt.Sprintf("there is no terminal %q", p.ID)}
	}
	return term, nil
}

// tail keeps the end of the text that is written to it.
type tail struct {
	limit int

	mu  sync.Mutex
	buf []byte
	cut bool
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if len(t.buf) > 2*t.limit { // seldom, so that little is moved
		t.shorten()
	}
	return len(p), nil
}

func (t *tail) shorten() {
	if excess := len(t.buf) - t.limit; excess > 0 {
		t.buf = append(t.buf[:0], t.buf[excess:]...)
		t.cut = true
	}
}

// text returns the end of the output, from the start of a character on, and whether anything before
// it is missing.
func (t *tail) text() (string, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.shorten()
	b := t.buf
	for i := 0; t.cut && i < utf8.UTFMax-1 && len(b) > 0 && !utf8.RuneStart(b[0]); i++ {
		b = b[1:]
	}
	return strings.ToValidUTF8(string(b), "\uFFFD"), t.cut
}
