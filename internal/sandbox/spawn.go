package sandbox

import (
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

// maxSpawnLog is how much of a program's stderr goes to the log.
const maxSpawnLog = 1 << 20

// program is a running program of a [Spawn].
//
// Its files are pipes and not the connection, although that would save the copying. The end of the
// connection must be seen, whatever the program reads and whoever else holds its stdout. And a
// runtime that makes its stdin non-blocking would do so with stdout, if both were one socket, and
// then lose what does not fit.
type program struct {
	*child
	stdin, stdout, stderr *os.File // our ends
}

// spawn starts a program as the leader of a group.
func (in *initProcess) spawn(c SetupCommand) (*program, error) {
	cmd, err := in.command(c, true)
	if err != nil {
		return nil, err
	}
	p := &program{}
	var childEnds [3]*os.File
	if childEnds[0], p.stdin, err = os.Pipe(); err == nil {
		if p.stdout, childEnds[1], err = os.Pipe(); err == nil {
			p.stderr, childEnds[2], err = os.Pipe()
		}
	}
	if err == nil {
		cmd.Stdin, cmd.Stdout, cmd.Stderr = childEnds[0], childEnds[1], childEnds[2]
		p.child, err = in.start(cmd)
	}
	for _, f := range childEnds {
		_ = f.Close() // the program has its own copies; nil files answer with an error
	}
	if err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *program) close() {
	for _, f := range []*os.File{p.stdin, p.stdout, p.stderr} {
		_ = f.Close() // nil or closed already
	}
}

// attend serves a connection that starts a program.
func (in *initProcess) attend(c *net.UnixConn, s Spawn) {
	defer func() { _ = c.Close() }()
	p, err := in.spawn(s.Command)
	if err != nil {
		in.note("start %s: %v", s.Command, err)
		part(c)
		_, _ = io.Copy(io.Discard, c) // see part
		return
	}
	defer p.close()
	input, output, said, gone := make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan struct{})
	// silent says that the program has closed its stdout, or has ended, before anybody asked it to end.
	// The other side hangs up then, maybe before the end is known here.
	var silent atomic.Bool
	go func() {
		defer close(input)
		pass(p.stdin, c) // until the program reads no more, which is its own affair, or nothing more comes
		_ = p.stdin.Close()
		_, _ = io.Copy(io.Discard, c)
	}()
	go func() {
		defer close(output)
		rest := &remainder{p.stdout, p.stdout, maxRest}
		pass(c, rest)
		_, _ = io.Copy(io.Discard, rest) // even if nobody reads any more, the program may have to print before it ends
		silent.Store(true)
		_ = c.CloseWrite()
	}()
	go func() {
		defer close(said)
		// The log fails when evalrun is gone.
		_, _ = io.Copy(&excerpt{in.log, maxSpawnLog}, &remainder{p.stderr, p.stderr, maxRest})
	}()
	go func() {
		defer close(gone)
		awaitHangup(c, input)
	}()

	select {
	case <-p.ended:
		silent.Store(true)
	case <-input:
	case <-gone:
	case <-in.visits.over:
	}
	asked := !silent.Load()
	in.endProgram(p, s.Grace)
	signalGroup(p.pid, syscall.SIGKILL)
	for _, f := range []*os.File{p.stdout, p.stderr} {
		_ = f.SetReadDeadline(time.Now()) // an escaped process may go on writing; see remainder
	}
	<-output
	<-said
	if err := ended(p.status); err != nil && !asked {
		in.note("%s: %v", s.Command, err)
	}
	part(c)
	_ = p.stdin.Close() // an escaped process may hold it and not read
	<-input
	<-gone
}

// endProgram waits for the end of a program: after the grace it gets SIGTERM, at the end of the
// space at once, and after another grace SIGKILL.
func (in *initProcess) endProgram(p *program, grace time.Duration) {
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.ended:
		return
	case <-timer.C:
	case <-in.visits.over:
	}
	signalGroup(p.pid, syscall.SIGTERM)
	timer.Reset(grace)
	select {
	case <-p.ended:
	case <-timer.C: // at the end of the space endServices may kill it before
		signalGroup(p.pid, syscall.SIGKILL)
		<-p.ended
	}
}

// pass copies until one side has ended, with a buffer of the size of a pipe. It prevents splice, by
// which the system moves pages from file to file itself. For messages of 64 KiB splice is no
// faster, and it makes a pipe full with 16 messages however small.
func pass(w io.Writer, r io.Reader) {
	_, _ = io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{r}, make([]byte, 64<<10)) // an error is an end
}

// part ends a connection in both directions: the client reads an end and cannot write. What it had
// written must still be read before the connection is closed, or the client would get an error in
// place of the end.
func part(c *net.UnixConn) {
	_ = c.CloseWrite() // fails if the client was first
	_ = c.CloseRead()
}

// note writes a program's end to the log.
func (in *initProcess) note(format string, args ...any) {
	_, _ = fmt.Fprintf(in.log, "evalrun: "+format+"\n", args...) // fails when evalrun is gone
}

// excerpt passes on the first left bytes, says that there were more, and discards them.
type excerpt struct {
	w    io.Writer
	left int
}

func (e *excerpt) Write(p []byte) (int, error) {
	if e.left == 0 {
		return len(p), nil
	}
	first := p[:min(len(p), e.left)]
	if e.left -= len(first); e.left == 0 {
		first = append(first[:len(first):len(first)], "\nevalrun: this was the last that is kept of it\n"...)
	}
	_, err := e.w.Write(first)
	return len(p), err
}
