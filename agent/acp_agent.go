package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/evalrun/evalrun/acp"
	"github.com/evalrun/evalrun/modelproxy"
	"github.com/evalrun/evalrun/sandbox"
	"github.com/evalrun/evalrun/trigger"
)

// The further files of a segment of an ACP agent.
const (
	FileWire    = "acp.jsonl"    // every line of the connection, with who sent it
	FileModel   = "model.jsonl"  // the calls that the model proxy saw
	FileSession = "session.json" // what the next segment needs to go on
	FileSetup   = "setup.log"    // what services, setup commands and healthcheck printed
)

const (
	// handshakeTimeout is how long the agent may take for each call before its first prompt.
	handshakeTimeout = 60 * time.Second
	// cancelGrace is how long a turn may take to end after session/cancel; the five agents that were measured need 0.3 s at most.
	cancelGrace = 5 * time.Second
	// suspendGrace is how long a turn may go on after something in it has to wait for a person.
	suspendGrace = 2 * time.Minute
	// defaultIdle holds where an entry has no idleTimeout.
	defaultIdle = 10 * time.Minute
)

// acpAgent runs an agent over the Agent Client Protocol: one process for each segment.
type acpAgent struct {
	entry Entry
	opts  Options
}

func newACPAgent(e Entry, opts Options) *acpAgent {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	return &acpAgent{entry: e, opts: opts}
}

// acpSegment is one segment of an ACP agent while it runs.
type acpSegment struct {
	*acpAgent
	seg    Segment
	redact func(io.Writer) io.WriteCloser
	info   *Info
	trail  *trajectory
	wire   *lines
	stderr *logFile
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
	// wireErr is the first error of writing wire.
	wireErr error
}

// Run implements Agent.
func (a *acpAgent) Run(ctx context.Context, seg Segment) (Outcome, error) {
	if seg.Place == nil {
		return Outcome{}, fmt.Errorf("agent %q: there is no place for it to run in", a.entry.Name)
	}
	if timeout := shorter(seg.Timeout, time.Duration(a.entry.Timeout)); timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, timeout, &Fault{FaultTimeout, fmt.Sprintf("the segment took longer than %v and was ended", timeout)})
		defer cancel()
	}
	s := &acpSegment{acpAgent: a, seg: seg, servers: seg.Servers, info: &Info{Isolation: seg.Place.Space.Isolation}}
	out, err := s.run(ctx)
	if err = errors.Join(err, s.close()); err != nil {
		return Outcome{}, fmt.Errorf("agent %q: %w", a.entry.Name, err)
	}
	if out.Fault != nil {
		out.Fault.Message = a.opts.redact(out.Fault.Message)
		if s.stderr != nil && saysMore(out.Fault.Category) {
			out.Fault.Message += tailOf(s.stderr)
		}
	}
	out.Info = s.info
	out.Files, err = keptFiles(seg.Dir)
	return out, err
}

// saysMore reports whether the agent's stderr may explain a fault.
func saysMore(c Category) bool {
	switch c {
	case FaultStart, FaultExit, FaultHandshake, FaultProtocol, FaultAgentError:
		return true
	}
	return false
}

// run starts the agent, has the turn and ends the agent. Faults are in the outcome.
func (s *acpSegment) run(ctx context.Context) (out Outcome, err error) {
	out, err = s.turn(ctx)
	if fault := s.end(ctx, out.Fault); fault != nil && out.Fault == nil {
		out = Outcome{Fault: fault}
	}
	if err != nil {
		return Outcome{}, err
	}
	return s.judge(out)
}

// turn is everything up to the answer to the prompt. What goes wrong on the way is a fault.
func (s *acpSegment) turn(ctx context.Context) (Outcome, error) {
	if err := s.readHistory(); err != nil {
		return Outcome{}, err
	}
	if err := s.open(); err != nil {
		return Outcome{}, err
	}
	if fault, err := s.start(ctx); fault != nil || err != nil {
		return Outcome{Fault: fault}, err
	}
	if fault := s.handshake(ctx); fault != nil {
		return Outcome{Fault: fault}, nil
	}
	prompt, fault, err := s.session(ctx)
	if fault != nil || err != nil {
		return Outcome{Fault: fault}, err
	}
	return s.prompt(ctx, prompt), nil
}

// open opens the segment's files.
func (s *acpSegment) open() error {
	var err error
	if s.model, err = s.openModel(); err != nil {
		return err
	}
	s.redact = s.redaction()
	s.trail = openTrajectory(s.seg.Dir, s.redact, s.opts.Now)
	s.wire = newLines(filepath.Join(s.seg.Dir, FileWire), s.redact)
	s.stderr = &logFile{path: filepath.Join(s.seg.Dir, FileStderr)}
	s.client = newClient(s)
	return nil
}

// through puts the redaction before a log.
func (s *acpSegment) through(log *logFile) io.Writer {
	if s.redact == nil {
		s.streams = append(s.streams, log)
		return log
	}
	w := s.redact(log)
	s.streams = append(s.streams, w, log)
	return w
}

// handshake makes sure that the agent speaks the protocol and takes the task's servers.
func (s *acpSegment) handshake(ctx context.Context) *Fault {
	ctx, cancel := context.WithTimeoutCause(ctx, handshakeTimeout, &Fault{FaultHandshake, fmt.Sprintf("the agent did not answer initialize within %v", handshakeTimeout)})
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
	return s.checkServers(ctx, hello.Capabilities)
}

// fault says what an error of the connection means.
func (s *acpSegment) fault(ctx context.Context, err error) *Fault {
	var agentError *acp.AgentError
	var protocol *acp.ProtocolError
	switch {
	case ctx.Err() != nil:
		return causeFault(ctx)
	case errors.As(err, &agentError):
		return &Fault{FaultAgentError, err.Error()}
	case errors.As(err, &protocol), errors.Is(err, acp.ErrLineTooLong):
		return &Fault{FaultProtocol, err.Error()}
	case errors.Is(err, acp.ErrClosed):
		return &Fault{FaultExit, "the agent ended: " + err.Error()}
	}
	return &Fault{FaultProtocol, err.Error()}
}

// prompt has the turn: the agent works until it answers, a limit is reached, or it has asked for something that has to wait.
func (s *acpSegment) prompt(ctx context.Context, text string) Outcome {
	s.trail.add(EventPrompt, s.record.SessionID, text, nil)
	s.client.begin()
	if s.model != nil {
		s.model.Turn(true)
		defer s.model.Turn(false)
	}
	type answer struct {
		result acp.PromptResult
		err    error
	}
	answers := make(chan answer, 1)
	calling, abandon := context.WithCancel(context.WithoutCancel(ctx))
	defer abandon()
	go func() {
		result, err := s.conn.Prompt(calling, s.record.SessionID, acp.Text(text))
		answers <- answer{result, err}
	}()
	idle := s.client.watchIdle()
	defer idle.Stop()
	var limit *Fault
	var a answer
	select {
	case a = <-answers:
	case <-ctx.Done():
		limit = causeFault(ctx)
	case limit = <-s.client.limits:
	case <-s.client.waitedOut:
		// It was told that a person has to answer, and goes on without: what it has asked for is enough.
	}
	if limit != nil && isLimit(limit.Category) {
		a = answer{err: limit}
		s.trail.add(EventLimit, s.record.SessionID, "", limit)
		if cancelErr := s.conn.Cancel(calling, s.record.SessionID); cancelErr == nil {
			timer := time.NewTimer(cancelGrace)
			defer timer.Stop()
			select {
			case late := <-answers: // it may still report what it has used
				s.stopped(late.result)
			case <-timer.C:
			}
		}
	}
	switch waits := s.client.waits(); {
	case limit != nil && isLimit(limit.Category):
		return s.limited(limit)
	case limit != nil:
		return Outcome{Fault: limit}
	case a.err != nil:
		return Outcome{Fault: s.fault(ctx, a.err)}
	case len(waits) > 0:
		s.stopped(a.result)
		return s.suspended(waits)
	}
	s.stopped(a.result)
	return Outcome{Output: s.output(nil)}
}

// isLimit reports whether what the agent did until then can be judged all the same.
func isLimit(c Category) bool { return c == FaultTimeout || c == FaultIdle || c == FaultOutputLimit }

// limited is the outcome of a turn that a limit has ended: what was done by then can be verified, if there is a verifier.
func (s *acpSegment) limited(limit *Fault) Outcome {
	s.info.Limit = limit
	return Outcome{Output: s.output(limit), Limit: limit}
}

// stopped records the answer to the prompt.
func (s *acpSegment) stopped(result acp.PromptResult) {
	if result.StopReason == "" {
		return
	}
	s.info.StopReason = result.StopReason
	if !isEmpty(result.Usage) && len(result.Usage) > 0 {
		s.info.AgentUsage = result.Usage
	}
	s.trail.add(EventStop, s.record.SessionID, "", map[string]any{"stopReason": result.StopReason, "usage": result.Usage})
}

// output is the document of an agent that speaks in words: the last thing that it said.
func (s *acpSegment) output(limit *Fault) json.RawMessage {
	s.client.flush()
	out, err := json.Marshal(struct {
		Content    string `json:"content"`
		StopReason string `json:"stopReason,omitempty"`
		Limit      *Fault `json:"limit,omitempty"`
	}{s.trail.last, s.info.StopReason, limit})
	if err != nil {
		return json.RawMessage("{}") // strings always marshal
	}
	return out
}

// suspended is the outcome of a turn in which something has to wait for a person.
func (s *acpSegment) suspended(waits []asked) Outcome {
	var interrupts []trigger.Interrupt
	for _, a := range waits {
		in, err := a.interrupt()
		if err != nil {
			return Outcome{Fault: &Fault{FaultInterrupt, err.Error()}}
		}
		interrupts = append(interrupts, in)
	}
	s.record.Asked = waits
	s.trail.add(EventSuspended, s.record.SessionID, "", waits)
	return Outcome{Interrupts: interrupts}
}

// end ends the agent's process and everything around it. It says what was wrong with the process, if that explains more than what is known.
func (s *acpSegment) end(ctx context.Context, known *Fault) *Fault {
	if s.process == nil {
		return nil
	}
	if s.conn != nil {
		_ = s.conn.Close() // stdin; the process is ended next whatever came of it
	}
	grace := endOfInput
	if ctx.Err() != nil {
		grace = 0
	}
	s.process.End(errSegmentOver, grace)
	exit, err := s.process.Wait(context.WithoutCancel(ctx))
	if s.conn != nil {
		s.conn.Wait()
	}
	if s.terms != nil {
		err = errors.Join(err, s.terms.Close())
	}
	if s.seg.Ended != nil {
		s.seg.Ended()
	}
	if err != nil {
		return &Fault{FaultInterrupted, "the agent could not be ended: " + err.Error()}
	}
	if known != nil && known.Category == FaultExit && exit.State != nil {
		known.Message = "the agent ended in the middle of its work with " + exit.State.String()
	}
	return nil
}

var errSegmentOver = errors.New("the segment is over")

// endOfInput is how long an agent may take to end by itself once its stdin is closed; most need less than 0.4 s, gemini does not end.
const endOfInput = 500 * time.Millisecond

// judge looks at what the agent's words do not tell: whether its model worked.
func (s *acpSegment) judge(out Outcome) (Outcome, error) {
	if s.client != nil {
		s.client.finish()
		s.info.ToolCalls = s.client.calls
	}
	if s.model != nil {
		failure := s.model.Failure()
		usage, err := s.model.Close()
		s.info.Model = &usage
		if err != nil {
			return Outcome{}, err
		}
		if err := s.keepModelCalls(); err != nil {
			return Outcome{}, err
		}
		// An agent that was suspended or ended by a limit may well have been in the middle of a call.
		if failure != nil && out.Interrupts == nil && out.Limit == nil && (out.Fault == nil || out.Fault.Category == FaultAgentError || out.Fault.Category == FaultExit) {
			out = Outcome{Fault: &Fault{FaultModel, failure.Error()}}
		}
	}
	if out.Fault != nil && s.trail != nil {
		s.trail.add(EventLimit, s.record.SessionID, "", out.Fault)
	}
	return out, s.writeRecord()
}

func (s *acpSegment) keepModelCalls() error {
	log := newLines(filepath.Join(s.seg.Dir, FileModel), s.redact)
	for _, call := range s.model.Calls() {
		if err := log.write(call); err != nil {
			return errors.Join(err, log.close())
		}
	}
	return log.close()
}

// close closes what the segment has opened, whatever became of it.
func (s *acpSegment) close() error {
	var errs []error
	if s.trail != nil {
		errs = append(errs, s.wireErr, s.trail.close(), s.wire.close())
	}
	for _, c := range s.streams {
		errs = append(errs, c.Close())
	}
	if s.files != nil {
		errs = append(errs, s.files.Close())
	}
	if s.model != nil {
		_, err := s.model.Close()
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// keptFiles lists what a segment has left.
func keptFiles(dir string) ([]string, error) {
	return namedFiles(dir, FileSession, FileTrajectory, FileTrace, FileStderr, FileSetup, FileWire, FileModel)
}

// namedFiles are those of the names that are files in a folder.
func namedFiles(dir string, names ...string) ([]string, error) {
	var files []string
	for _, name := range names {
		info, err := os.Lstat(filepath.Join(dir, name))
		switch {
		case errors.Is(err, os.ErrNotExist):
		case err != nil:
			return nil, err
		case info.Mode().IsRegular():
			files = append(files, name)
		}
	}
	return files, nil
}

// shorter is the shorter of two limits, of which 0 means none.
func shorter(a, b time.Duration) time.Duration {
	if a <= 0 || b > 0 && b < a {
		return b
	}
	return a
}
