// Package acpagent runs an agent that speaks the Agent Client Protocol, one process for each segment.
// It is the client: it opens or resumes the session, sends the prompt, answers what the agent asks, and
// says what the rollout waits for. It knows nothing of stores, eval sets or scores.
package acpagent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/evalrun/evalrun/acp"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/agent/program"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/modelproxy"
	"github.com/evalrun/evalrun/internal/sandbox"
)

// The further files of a segment of an ACP agent.
const (
	FileWire    = "acp.jsonl"    // every line of the connection, with who sent it
	FileModel   = "model.jsonl"  // the calls that the model proxy saw
	FileSession = "session.json" // what the next segment needs to go on
	FileSetup   = "setup.log"    // what services, setup commands and healthcheck printed
)

// bounds are what an agent may take for what neither its entry nor the segment limits.
type bounds struct {
	// handshake is for initialize and authenticate, and once more for opening the session.
	handshake time.Duration
	// cancel is how long a turn may take to end after session/cancel; the five agents that were measured need 0.3 s at most.
	cancel time.Duration
	// suspend is how long a turn may go on after something in it has to wait for a person.
	suspend time.Duration
	// settle is how long the calls that run at the end of a turn may take to say what they have started.
	settle time.Duration
	// fetch is how long the result of one job may take to be fetched.
	fetch time.Duration
	// tools is how long an agent may take, once its session is open, to ask for the tools of its servers.
	tools time.Duration
	// idle holds where an entry has no idleTimeout.
	idle time.Duration
	// exit is how long an agent may take to end by itself once its stdin is closed; most need less than 0.4 s, gemini does not end.
	exit time.Duration
	// wire is how many bytes it may send, whatever that is: all of it is kept.
	wire int64
}

var defaultBounds = bounds{
	handshake: time.Minute, cancel: 5 * time.Second, suspend: 2 * time.Minute, settle: time.Minute, fetch: 2 * time.Minute, tools: 30 * time.Second, idle: 10 * time.Minute, exit: 500 * time.Millisecond, wire: 1 << 30,
}

// Options are what an ACP agent needs beside its entry.
type Options struct {
	agent.Options
	// Models is where agents find their models; nil for agents that have credentials of their own.
	Models *modelproxy.Proxy
	// Gateway is the MCP gateway for segments that have their servers behind it.
	Gateway *gateway.Gateway
	// Version is evalrun's own, which agents are told.
	Version string
}

// acpAgent runs an agent over the Agent Client Protocol: one process for each segment.
type acpAgent struct {
	entry  agent.Entry
	opts   Options
	bounds bounds
}

// New makes an agent of an entry of type acp.
func New(e agent.Entry, opts Options) agent.Agent { return newACPAgent(e, opts) }

func newACPAgent(e agent.Entry, opts Options) *acpAgent {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	return &acpAgent{e, opts, defaultBounds}
}

// segment is one segment of an ACP agent while it runs.
type segment struct {
	*acpAgent
	seg    agent.Segment
	redact func(io.Writer) io.WriteCloser
	info   *agent.Info
	clock  *workClock
	trail  *agent.Trajectory
	wire   *agent.Lines
	stderr *program.Log
	// setup is what servers and setup commands print; nil if there are none. launched is how the agent's process was started.
	setup    *program.Log
	launched *Launch
	// streams are closed at the end, in order.
	streams []io.Closer

	model   *modelproxy.Session // nil if the agent talks to its provider itself
	files   *acp.Files
	terms   *acp.Terminals
	process *sandbox.Process
	conn    *acp.Conn
	client  *client
	record  sessionRecord
	servers []acp.MCPServer
	access  *gateway.Access // nil if the servers are not behind the gateway
	// received counts the bytes that the agent has sent, wireErr is the first error of writing wire.
	received int64
	wireErr  error
	// chatter is the beginning of what the agent has printed that is not of the protocol.
	chatter []byte
}

// Run implements Agent.
func (a *acpAgent) Run(ctx context.Context, seg agent.Segment) (agent.Outcome, error) {
	if seg.Place == nil {
		return agent.Outcome{}, fmt.Errorf("agent %q: there is no place for it to run in", a.entry.Name)
	}
	timeout := a.entry.SegmentTimeout(seg.Timeout)
	ctx, clock, stop := newWorkClock(ctx, timeout, fault.Newf(fault.Timeout, "the segment took longer than %v and was ended", timeout))
	defer stop()
	s := &segment{acpAgent: a, seg: seg, servers: seg.Servers, clock: clock, info: &agent.Info{Isolation: seg.Place.Space.Isolation}}
	out, err := s.run(ctx)
	s.info.HeldMs = clock.waited().Milliseconds()
	if err = errors.Join(err, s.close()); err != nil {
		return agent.Outcome{}, fmt.Errorf("agent %q: %w", a.entry.Name, err)
	}
	if out.Fault != nil {
		switch out.Fault.Category {
		case fault.MCP:
			out.Fault.Message += s.invisibleFiles()
		case fault.Exit, fault.Handshake, fault.Protocol:
			if text := program.CleanTail(s.chatter); text != "" {
				out.Fault.Message += "; it printed, in place of JSON-RPC:\n" + text
			}
		}
		out.Fault.Message = agent.Options{Redact: s.redaction()}.RedactText(out.Fault.Message)
		if out.Fault.Category == fault.MCP && s.setup != nil {
			if text := s.setup.Tail(); text != "" {
				out.Fault.Message += "; servers and setup printed (" + FileSetup + "):\n" + text
			}
		}
		if s.stderr != nil && saysMore(out.Fault.Category) {
			out.Fault.Message += s.stderr.StderrTail()
		}
	}
	out.Info = s.info
	out.Files, err = keptFiles(seg.Dir)
	return out, err
}

// saysMore reports whether the agent's stderr may explain a fault.
func saysMore(c fault.Category) bool {
	switch c {
	case fault.Start, fault.Exit, fault.Handshake, fault.Protocol, fault.AgentError:
		return true
	}
	return false
}

// run starts the agent, has the turn and ends the agent. Faults are in the outcome.
func (s *segment) run(ctx context.Context) (out agent.Outcome, err error) {
	out, err = s.turn(ctx)
	if lost := s.noteServers(); lost != nil && out.Fault == nil {
		out = agent.Outcome{Fault: lost}
	}
	if f := s.end(ctx, out.Fault); f != nil && out.Fault == nil {
		out = agent.Outcome{Fault: f}
	}
	if err != nil {
		return agent.Outcome{}, err
	}
	return s.judge(out)
}

// turn is everything up to the answer to the prompt. What goes wrong on the way is a fault.
func (s *segment) turn(ctx context.Context) (agent.Outcome, error) {
	if err := s.readHistory(); err != nil {
		return agent.Outcome{}, err
	}
	if f, err := s.open(); f != nil || err != nil {
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
	if prompt == "" && len(s.record.Asked) > 0 { // what has arrived is nothing yet
		return s.suspended(nil), nil
	}
	if f := s.awaitTools(ctx); f != nil {
		return agent.Outcome{Fault: f}, nil
	}
	return s.prompt(ctx, prompt), nil
}

// open opens the segment's files and the ways to the model and the servers.
func (s *segment) open() (f *fault.Fault, err error) {
	s.client = newClient(s)
	s.model, f = s.openModel()
	err = s.openGateway(s.seg.Place)
	s.redact = s.redaction()
	s.trail = agent.OpenTrajectory(s.seg.Dir, s.redact, s.opts.Now)
	s.wire = agent.NewLines(filepath.Join(s.seg.Dir, FileWire), s.redact)
	s.stderr = program.OpenLog(filepath.Join(s.seg.Dir, agent.FileStderr), s.redact)
	return f, err
}

// handshake makes sure that the agent speaks the protocol and takes the task's servers.
func (s *segment) handshake(ctx context.Context) *fault.Fault {
	ctx, cancel := context.WithTimeoutCause(ctx, s.bounds.handshake, fault.Newf(fault.Handshake, "the agent did not answer initialize within %v", s.bounds.handshake))
	defer cancel()
	hello, err := s.conn.Initialize(ctx, acp.Implementation{Name: "evalrun", Version: s.opts.Version})
	if err != nil {
		return s.fault(ctx, err)
	}
	s.client.caps = hello.Capabilities
	s.info.AgentName, s.info.AgentVersion = hello.Agent.Name, hello.Agent.Version
	if s.entry.AuthMethod != "" {
		if err := s.conn.Authenticate(ctx, s.entry.AuthMethod); err != nil {
			return s.fault(ctx, err)
		}
	}
	s.servers = s.declared(hello.Capabilities)
	return s.checkServers(ctx, hello.Capabilities)
}

// fault says what an error of the connection means.
func (s *segment) fault(ctx context.Context, err error) *fault.Fault {
	var agentError *acp.AgentError
	var protocol *acp.ProtocolError
	switch {
	case ctx.Err() != nil:
		return agent.CauseFault(ctx)
	case errors.As(err, &agentError):
		return fault.New(fault.AgentError, err.Error())
	case errors.As(err, &protocol), errors.Is(err, acp.ErrLineTooLong):
		return fault.New(fault.Protocol, err.Error())
	case errors.Is(err, acp.ErrClosed):
		return fault.New(fault.Exit, "the agent ended: "+err.Error())
	}
	return fault.New(fault.Protocol, err.Error())
}

// end ends the agent's process and everything around it. It says what was wrong with the process, if that explains more than what is known.
func (s *segment) end(ctx context.Context, known *fault.Fault) *fault.Fault {
	if s.process == nil {
		return nil
	}
	if s.conn != nil {
		_ = s.conn.Close() // stdin; the process is ended next whatever came of it
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
	if s.access != nil {
		err = errors.Join(err, s.access.Close()) // nobody bears its token any more
	}
	if s.terms != nil {
		err = errors.Join(err, s.terms.Close())
	}
	if s.seg.Ended != nil {
		s.seg.Ended()
	}
	if err != nil {
		return fault.New(fault.Interrupted, "the agent could not be ended: "+err.Error())
	}
	if known != nil && known.Category == fault.Exit && exit.State != nil {
		known.Message = "the agent ended in the middle of its work with " + exit.State.String()
	}
	return nil
}

var errSegmentOver = errors.New("the segment is over")

// judge looks at what the agent's words do not tell: whether its model worked.
func (s *segment) judge(out agent.Outcome) (agent.Outcome, error) {
	if s.client != nil {
		s.client.finish()
	}
	if s.model != nil {
		failure := s.model.Failure()
		usage, err := s.model.Close()
		s.info.Model = &usage
		if err != nil {
			return agent.Outcome{}, err
		}
		if err := s.keepModelCalls(); err != nil {
			return agent.Outcome{}, err
		}
		// An agent that was suspended or ended by a limit may well have been in the middle of a call.
		if failure != nil && out.Interrupts == nil && out.Limit == nil && (out.Fault == nil || out.Fault.Category == fault.AgentError || out.Fault.Category == fault.Exit) {
			out = agent.Outcome{Fault: fault.New(fault.Model, failure.Error())}
		}
	}
	if out.Fault != nil && s.trail != nil {
		s.trail.Add(agent.EventLimit, s.record.SessionID, "", out.Fault)
	}
	return out, s.writeRecord()
}

func (s *segment) keepModelCalls() error {
	log := agent.NewLines(filepath.Join(s.seg.Dir, FileModel), s.redact)
	for _, call := range s.model.Calls() {
		if err := log.Append(call); err != nil {
			return errors.Join(err, log.Close())
		}
	}
	return log.Close()
}

// close closes what the segment has opened, whatever became of it.
func (s *segment) close() error {
	var errs []error
	if s.trail != nil {
		errs = append(errs, s.wireErr, s.trail.Close(), s.wire.Close())
	}
	for _, l := range []*program.Log{s.stderr, s.setup} {
		if l != nil {
			errs = append(errs, l.Close())
		}
	}
	for _, c := range s.streams {
		errs = append(errs, c.Close())
	}
	if s.files != nil {
		errs = append(errs, s.files.Close())
	}
	if s.access != nil {
		errs = append(errs, s.access.Close())
	}
	if s.model != nil {
		_, err := s.model.Close()
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// keptFiles lists what a segment has left.
func keptFiles(dir string) ([]string, error) {
	return agent.FilesIn(dir, FileSession, agent.FileTrajectory, agent.FileTrace, agent.FileStderr, FileSetup, FileWire, FileModel)
}
