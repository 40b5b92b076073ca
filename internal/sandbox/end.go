package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"
)

// ending is a call of End.
type ending struct {
	reason   error
	patience time.Duration
}

// End makes Wait end the process. Its stdin is closed. If it has not ended by itself after
// patience, it is ended as when the context is done. The reason becomes Exit.Ended; of several
// calls the first counts.
func (p *Process) End(reason error, patience time.Duration) {
	select {
	case p.ending <- ending{reason, patience}:
	default:
	}
}

// Wait waits until the process has ended, and ends it when ctx is done or a writer fails. After
// Wait no process of its group and no process that bears its marker is left. The error reports
// failures of evalrun itself.
func (p *Process) Wait(ctx context.Context) (Exit, error) {
	var exit Exit
	select {
	case <-p.exited:
	case exit.Ended = <-p.failed:
		p.end()
	case asked := <-p.ending:
		exit.Ended = asked.reason
		p.endPatiently(ctx, asked.patience)
	case <-ctx.Done():
		exit.Ended = context.Cause(ctx)
		p.end()
	}

	// On Linux the process is still a zombie here and holds the id of its group, which no other group
	// can have.
	signalGroup(p.PID(), syscall.SIGKILL)
	if p.ended != nil {
		p.ended()
	}
	var err error
	if !p.shared {
		err = sweepAfter(p.PID(), p.started, p.marker)
		if p.space != nil {
			err = errors.Join(err, p.space.Leave())
		}
	}
	if remote, ok := p.space.(Remote); ok {
		exit.memory = remote.MemoryNote()
	}
	// Wait's own error repeats the process state. Another error means that there is no state.
	if werr := p.cmd.Wait(); p.cmd.ProcessState == nil {
		err = errors.Join(err, fmt.Errorf("wait for process %d: %w", p.PID(), werr))
	}
	exit.State, exit.MemoryKills = p.cmd.ProcessState, p.group.MemoryKills()
	err = errors.Join(err, p.group.Remove())

	// Every process that could write is gone, so everything printed is in the pipes by now. The
	// deadline only wakes readers that wait for more, because an escaped process may hold the pipes
	// open. Each reader then takes what is there (see remainder).
	for _, f := range p.outputs() {
		_ = f.SetReadDeadline(time.Now()) // pipes have deadlines on every system we build for
	}
	_ = p.stdin.Close()
	if p.interactive != nil {
		p.interactive.drain()
	}
	if p.init != nil {
		p.init.end() // it is gone; this is for our own end
	}
	p.copying.Wait()
	p.closePipes()
	select {
	case werr := <-p.failed: // while the last of the output was read
		exit.Ended = cmp.Or(exit.Ended, werr)
	default:
	}
	if exit.Ended == nil && p.init != nil && p.init.err != nil {
		exit.Ended = p.init.err
	}
	return exit, err
}

// endPatiently closes stdin, at which most processes end. If the process does not, endPatiently
// ends it.
func (p *Process) endPatiently(ctx context.Context, patience time.Duration) {
	_ = p.stdin.Close() // it may be closed already
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-p.exited:
		return
	case <-timer.C:
	case <-ctx.Done():
	}
	p.end()
}

// end ends the process step by step: stdin is closed, then come SIGTERM, the grace and SIGKILL. An
// init does that itself, because bwrap would kill at SIGTERM.
func (p *Process) end() {
	_ = p.stdin.Close() // it may be closed already
	grace := p.grace
	if p.init != nil {
		p.init.end()
		grace += initMargin
	} else {
		signalGroup(p.PID(), syscall.SIGTERM)
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.exited:
	case <-timer.C:
		signalGroup(p.PID(), syscall.SIGKILL)
		<-p.exited
	}
}

// watch closes exited when the process has ended.
func (p *Process) watch() {
	awaitExit(p.cmd)
	close(p.exited)
}
