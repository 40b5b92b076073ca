// Package acpagent runs an agent that speaks the Agent Client Protocol, one process for each
// segment. It is the client: it opens or resumes the session, sends the prompt, answers the agent's
// requests, and reports what the rollout waits for. It knows nothing of stores, eval sets or
// scores.
package acpagent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/agent/program"
	"github.com/evalrun/evalrun/internal/agent/toolserver"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/record"
)

// The further files of a segment of an ACP agent.
const (
	FileWire    = "acp.jsonl"    // every line of the connection, with who sent it
	FileModel   = "model.jsonl"  // the calls that the model proxy saw
	FileSession = "session.json" // the data that the next segment needs
	FileSetup   = "setup.log"    // the output of services, setup commands and healthcheck
)

// bounds limits an agent where neither its entry nor the segment does.
type bounds struct {
	// handshake is how long initialize and authenticate may take together, and again opening the
	// session.
	handshake time.Duration
	// cancel is how long a turn may take to end after session/cancel; the five agents that were
	// measured need 0.3 s at most.
	cancel time.Duration
	// suspend is how long a turn may go on after something in it has to wait for a person.
	suspend time.Duration
	// settle is how long the calls that run at the end of a turn may take to report the work that
	// they have started.
	settle time.Duration
	// fetch is how long it may take to fetch the result of one job.
	fetch time.Duration
	// tools is how long an agent may take, once its session is open, to ask for the tools of its
	// servers.
	tools time.Duration
	// idle is the idleTimeout of entries that set none.
	idle time.Duration
	// exit is how long an agent may take to end by itself once its stdin is closed; most need less
	// than 0.4 s, gemini does not end.
	exit time.Duration
	// wire is how many bytes the agent may send in all, since all of them are kept.
	wire int64
}

var defaultBounds = bounds{
	handshake: time.Minute, cancel: 5 * time.Second, suspend: 2 * time.Minute, settle: time.Minute, fetch: 2 * time.Minute,
	tools: time.Minute, idle: 10 * time.Minute, exit: 500 * time.Millisecond, wire: 1 << 30,
}

// acpAgent runs an agent over the Agent Client Protocol: one process for each segment.
type acpAgent struct {
	entry  entry
	opts   agent.Options
	bounds bounds
}

// entry is an agent's entry with its settings at hand.
type entry struct {
	agent.Entry
	*Settings
}

// New makes an agent from an entry of type acp.
func New(e agent.Entry, opts agent.Options) agent.Agent { return newACPAgent(e, opts) }

func newACPAgent(e agent.Entry, opts agent.Options) *acpAgent {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	a := &acpAgent{entry{e, SettingsOf(e)}, opts, defaultBounds}
	if limit := time.Duration(a.entry.HandshakeTimeout); limit > 0 {
		a.bounds.handshake, a.bounds.tools = limit, max(limit, a.bounds.tools)
	}
	return a
}

// Run implements Agent.
func (a *acpAgent) Run(ctx context.Context, seg agent.Segment) (agent.Outcome, error) {
	if seg.Sandbox == nil {
		return agent.Outcome{}, fmt.Errorf("agent %q: there is no sandbox for it to run in", a.entry.Name)
	}
	seg.LimitTo(time.Duration(a.entry.Timeout), time.Duration(a.entry.Timeout), agent.TimeoutOfEntry)
	ctx, clock, stop := toolserver.NewClock(ctx, seg.Timeout, seg.TimeoutFault())
	defer stop()
	s := &segment{acpAgent: a, seg: seg, clock: clock, info: &record.Info{Isolation: seg.Sandbox.Config.Isolation}}
	s.servers = newServers(seg, s.info)
	out, err := s.run(ctx)
	s.info.HeldMs = clock.Waited().Milliseconds()
	if err = errors.Join(err, s.close()); err != nil {
		return agent.Outcome{}, fmt.Errorf("agent %q: %w", a.entry.Name, err)
	}
	if out.Fault != nil {
		switch out.Fault.Category {
		case fault.MCP:
			out.Fault.Message += s.servers.invisibleFiles(s.launched)
		case fault.Exit, fault.Handshake, fault.Protocol:
			if s.wire != nil {
				if text := program.CleanTail(s.wire.printed); text != "" {
					out.Fault.Message += "; it printed, in place of JSON-RPC:\n" + text
				}
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

// Close implements Agent. Nothing is kept.
func (a *acpAgent) Close() error { return nil }

// saysMore reports whether the agent's stderr may explain a fault of a category.
func saysMore(c fault.Category) bool {
	switch c {
	case fault.Start, fault.Exit, fault.Handshake, fault.Protocol, fault.AgentError:
		return true
	}
	return false
}

// keptFiles lists the files that a segment has left.
func keptFiles(dir string) ([]string, error) {
	return record.FilesIn(dir, FileSession, record.FileTrajectory, record.FileTrace, record.FileStderr, FileSetup,
		FileWire, FileModel, record.FileUsage)
}
