package acpagent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"path/filepath"
	"time"

	"github.com/evalrun/evalrun/acp"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/agent/program"
	"github.com/evalrun/evalrun/internal/agent/toolserver"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/gateway/suspend"
	"github.com/evalrun/evalrun/internal/modelproxy"
	"github.com/evalrun/evalrun/internal/record"
	"github.com/evalrun/evalrun/internal/sandbox"
	"github.com/evalrun/evalrun/internal/wait"
)

// segment is one segment of an ACP agent while it runs. Each part of it has one job.
type segment struct {
	*acpAgent
	seg    agent.Segment
	redact func(io.Writer) io.WriteCloser
	info   *record.Info
	clock  *toolserver.Clock
	trail  *record.Trajectory
	wire   *wireLog
	stderr *program.Log
	// setup is the log of servers and setup commands; nil if there are none.
	setup *program.Log
	// launched is how the agent's process was started.
	launched *Launch

	model *modelproxy.Session // nil if the agent talks to its provider itself
	meter *meter
	// promptUsage is the usage of models that the answer to the prompt reports.
	promptUsage json.RawMessage
	files       *acp.Files
	terms       *acp.Terminals
	process     *sandbox.Process
	conn        *acp.Conn
	caps        acp.Capabilities
	authMethods []acp.AuthMethod

	servers      *servers
	offers       *offers
	limits       *limits
	pending      *pendingRequests
	calls        *callRecorder
	idle         *idleTimer
	permissions  *permissions
	client       *client
	conversation *conversation
}

// run starts the agent, runs the turn and ends the agent. Faults are in the outcome.
func (s *segment) run(ctx context.Context) (out agent.Outcome, err error) {
	out, err = s.turn(ctx)
	if lost := s.servers.report(); lost != nil && out.Fault == nil {
		out = agent.Outcome{Fault: lost}
	}
	if f := out.Fault; f != nil && isLimit(f.Category) && s.info.Limit == nil {
		s.info.Limit = f // a limit was reached before the prompt
	}
	if f := s.end(ctx, out.Fault); f != nil && out.Fault == nil {
		out = agent.Outcome{Fault: f}
	}
	if err != nil {
		return agent.Outcome{}, err
	}
	return s.judge(out)
}

// turn does everything up to the answer to the prompt. Failures on the way are faults.
func (s *segment) turn(ctx context.Context) (agent.Outcome, error) {
	earlier, err := readRecord(s.seg.History)
	if err != nil {
		return agent.Outcome{}, err
	}
	if f, err := s.open(earlier); f != nil || err != nil {
		return agent.Outcome{Fault: f}, err
	}
	if f, err := s.start(ctx); f != nil || err != nil {
		return agent.Outcome{Fault: f}, err
	}
	if f := s.handshake(ctx); f != nil {
		return agent.Outcome{Fault: f}, nil
	}
	prompt, f, err := s.session(ctx)
	if f != nil || err != nil {
		return agent.Outcome{Fault: f}, err
	}
	if prompt == "" && len(s.conversation.record.Pending) > 0 { // nothing has arrived that the agent could be told
		return s.conversation.suspend(nil), nil
	}
	if f := s.servers.awaitTools(ctx, s.bounds.tools); f != nil {
		return agent.Outcome{Fault: f}, nil
	}
	if s.servers.behindGateway() {
		if err := suspend.CheckMocks(s.servers.access, s.seg.Mocks); err != nil {
			return agent.Outcome{Fault: fault.New(fault.MCP, err.Error())}, nil
		}
	}
	return s.prompt(ctx, prompt), nil
}

// open opens the segment's files and the ways to the model and the servers.
func (s *segment) open(earlier sessionRecord) (f *fault.Fault, err error) {
	s.limits, s.pending = newLimits(), newPendingRequests(s.bounds.suspend)
	s.meter = &meter{log: record.NewUsageLog(s.seg.Dir), budget: s.seg.Budget, limits: s.limits}
	s.offers = newOffers(s.entry.ToolName, s.servers)
	s.model, f = s.openModel()
	s.calls = newCallRecorder(s.opts.Now, newToolNames(s.entry, s.seg.Servers), s.servers)
	s.idle = &idleTimer{
		limit: cmp.Or(max(0, time.Duration(s.entry.IdleTimeout)), s.bounds.idle), now: s.opts.Now, calls: s.calls,
		model: s.model, limits: s.limits,
	}
	s.permissions = &permissions{
		policy: s.entry.Permissions, consume: s.seg.Consume, servers: s.servers, calls: s.calls, pending: s.pending,
		limits:   s.limits,
		approved: earlier.approvals(),
	}
	err = s.openGateway()
	s.redact = s.redaction() // the redaction knows the tokens of the model and the gateway
	s.trail = record.OpenTrajectory(s.seg.Dir, s.redact, s.opts.Now)
	s.calls.trail, s.permissions.trail = s.trail, s.trail
	s.wire = &wireLog{lines: record.NewLines(filepath.Join(s.seg.Dir, FileWire), s.redact), now: s.opts.Now,
		bound: s.bounds.wire, limits: s.limits}
	s.stderr = program.OpenLog(filepath.Join(s.seg.Dir, record.FileStderr), s.redact)
	s.client = &client{
		elicitation: s.entry.Elicitation, outputBytes: agent.DefaultOutputBytes, trail: s.trail, calls: s.calls,
		permissions: s.permissions,
		pending:     s.pending, idle: s.idle, limits: s.limits,
	}
	if s.seg.OutputBytes > 0 {
		s.client.outputBytes = s.seg.OutputBytes
	}
	s.conversation = &conversation{record: earlier, seg: s.seg, redact: s.redact, trail: s.trail, calls: s.calls}
	return f, err
}

// openGateway puts the servers behind the gateway, if the segment wants that. The gateway reports
// nothing before the agent runs.
func (s *segment) openGateway() error {
	g := s.seg.Gateway
	if g == nil || s.opts.Gateway == nil || len(s.seg.Servers) == 0 {
		return nil
	}
	calls := &suspend.Hooks{
		Ledger: g.Ledger, Check: g.Check, Jobs: g.Jobs, SoftWait: g.SoftWait, Person: s.entry.Elicitation == PolicySuspend,
		Mocks:   s.seg.Mocks,
		Changed: s.workChanged, Permit: s.permissions.decideCall, Called: s.calls.saw,
	}
	return s.servers.open(s.opts.Gateway, s.seg, s.clock, gateway.AccessOptions{Now: s.opts.Now, Policy: calls.Policy})
}

// workChanged is called when the state of work changes that calls have started.
func (s *segment) workChanged(w wait.Work, state suspend.State) {
	switch state {
	case suspend.Held, suspend.Released:
		s.clock.Hold(state == suspend.Held)
	case suspend.Suspended:
		s.idle.reset()
		s.pending.add(requestOf(w))
	case suspend.Arrived:
		s.pending.workArrived(w)
	case suspend.Unknown:
		s.limits.reach(fault.Newf(fault.StartUnknown,
			"the call of %s of MCP server %q may have started something before a crash, "+
				"and the server can neither tell nor start it only once", w.Tool, w.Server))
	}
}

// end ends the agent's process and everything around it. It returns the fault of the process, if
// that explains more than the known fault.
func (s *segment) end(ctx context.Context, known *fault.Fault) *fault.Fault {
	if s.process == nil {
		return nil
	}
	ended := known != nil && (known.Category == fault.Exit ||
		known.Category == fault.Handshake && s.conn != nil && s.conn.Err() != nil)
	if s.conn != nil {
		_ = s.conn.Close() // this closes stdin; the process is ended next in any case
	}
	grace := s.bounds.exit
	if ctx.Err() != nil {
		grace = 0
	}
	s.process.End(errSegmentOver, grace)
	exit, err := s.process.Wait(context.WithoutCancel(ctx))
	if s.conn != nil {
		s.conn.Wait()
	}
	err = errors.Join(err, s.servers.close())
	if s.terms != nil {
		err = errors.Join(err, s.terms.Close())
	}
	if s.seg.Ended != nil {
		s.seg.Ended()
	}
	if err != nil {
		f := fault.New(fault.Interrupted, "the agent could not be ended: "+err.Error())
		var lost *sandbox.LostError
		if errors.As(err, &lost) && known != nil && known.Category.Owner() == fault.OwnerAgent && !isLimit(known.Category) {
			*known = *f // it lost its place, which looks like its own end
		}
		return f
	}
	if known != nil && exit.State != nil && ended {
		when := "in the middle of its work"
		if known.Category == fault.Handshake {
			when = "before its session was open"
		}
		known.Message = "the agent ended " + when + " with " + exit.State.String() + exit.MemoryNote()
	}
	return nil
}

var errSegmentOver = errors.New("the segment is over")

// finish reports what the agent did. It is called when no further update comes.
func (s *segment) finish() {
	s.pending.stop()
	s.calls.finish(s.info)
	if s.info.AgentUsage == nil {
		s.info.AgentUsage = s.client.lastUsage()
	}
}

// judge checks whether the agent's model worked, which the agent itself does not report.
func (s *segment) judge(out agent.Outcome) (agent.Outcome, error) {
	s.finish()
	if s.model != nil {
		failure := s.model.Failure()
		usage, err := s.model.Close()
		s.info.Model = &usage
		var lost error
		if s.info.Usage, lost = s.meter.total(); errors.Join(err, lost) != nil {
			return agent.Outcome{}, errors.Join(err, lost)
		}
		s.info.UsageSource = record.UsageOfProxy
		if err := s.keepModelCalls(); err != nil {
			return agent.Outcome{}, err
		}
		// An agent that was suspended or ended by a limit may well have been in the middle of a
		// call.
		if failure != nil && out.Interrupts == nil && out.Limit == nil &&
			(out.Fault == nil || out.Fault.Category == fault.AgentError || out.Fault.Category == fault.Exit) {
			out = agent.Outcome{Fault: fault.New(fault.Model, failure.Error())}
		}
		kept := &s.conversation.record
		var hidden *fault.Fault
		if kept.Offered, hidden = s.offers.judge(s.info, kept.Offered); hidden != nil &&
			out.Fault == nil && out.Interrupts == nil {
			out = agent.Outcome{Fault: hidden}
		}
	}
	if s.model == nil {
		s.reported()
	}
	if out.Fault != nil {
		s.trail.Add(record.EventLimit, s.conversation.record.SessionID, "", out.Fault)
	}
	return out, s.conversation.write(s.info, s.permissions.unused())
}

// close closes everything that the segment has opened.
func (s *segment) close() error {
	var errs []error
	if s.trail != nil {
		errs = append(errs, s.trail.Close(), s.wire.close())
	}
	for _, l := range []*program.Log{s.stderr, s.setup} {
		if l != nil {
			errs = append(errs, l.Close())
		}
	}
	if s.files != nil {
		errs = append(errs, s.files.Close())
	}
	errs = append(errs, s.servers.close())
	if s.model != nil {
		_, err := s.model.Close()
		errs = append(errs, err)
	}
	if s.meter != nil {
		errs = append(errs, s.meter.log.Close())
	}
	return errors.Join(errs...)
}
