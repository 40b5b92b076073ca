package acpagent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/acp"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/agent/program"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/sandbox"
)

// redaction returns the redaction of the segment's files: the run's, preceded by one for the
// secrets that only this segment knows.
func (s *segment) redaction() func(io.Writer) io.WriteCloser {
	secrets := map[string]string{}
	if s.model != nil {
		secrets["MODEL_TOKEN"] = s.model.Token()
	}
	if s.servers.behindGateway() {
		secrets["MCP_TOKEN"] = s.servers.access.Token()
	}
	own := redact.New(secrets)
	switch {
	case own == nil:
		return s.opts.Redact
	case s.opts.Redact == nil:
		return own.Writer
	}
	return func(w io.Writer) io.WriteCloser {
		outer := s.opts.Redact(w)
		return &chained{own.Writer(outer), outer}
	}
}

// chained closes two writers. The first writes into the second.
type chained struct {
	io.WriteCloser
	outer io.Closer
}

func (c *chained) Close() error { return errors.Join(c.WriteCloser.Close(), c.outer.Close()) }

// launch returns how the agent's process is started, with its way to its model.
func (s *segment) launch() (*Launch, error) {
	l := &Launch{
		Entry: s.entry.Entry, Options: s.opts, Sandbox: *s.seg.Sandbox, BaseDir: s.seg.BaseDir, Marker: s.seg.Marker,
		Stderr: s.stderr,
		Env:    append([]string{agent.TraceparentVar + "=" + s.seg.Traceparent()}, s.seg.Env...),
	}
	if l.Sandbox.Setup == nil && len(l.Sandbox.Config.Spawns) > 0 {
		l.Sandbox.Setup = &sandbox.Setup{} // the output of stdio servers goes to the setup's log
	}
	if l.Sandbox.Setup != nil {
		s.setup = program.OpenLog(filepath.Join(s.seg.Dir, FileSetup), s.redact)
		l.SetupLog = s.setup
	}
	if s.model == nil {
		return l, nil
	}
	l.ModelURL, l.ModelKey = s.model.URL(), s.model.Token()
	if config := &l.Sandbox.Config; config.HasOwnLoopback() {
		socket := filepath.Join(l.Sandbox.Sockets, "model.sock")
		if err := s.model.ServeUnix(socket); err != nil {
			return nil, err
		}
		config.Forwards = append(slices.Clone(config.Forwards), sandbox.Forward{Port: modelPort, Socket: socket})
		l.ModelURL = fmt.Sprintf("http://127.0.0.1:%d", modelPort)
	}
	return l, nil
}

// start starts the agent's process in its sandbox. A fault says what is wrong with the agent or its
// sandbox.
func (s *segment) start(ctx context.Context) (*fault.Fault, error) {
	l, err := s.launch()
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return agent.CauseFault(ctx), nil
	}
	s.process, err = l.Start(ctx)
	s.launched = l
	if err != nil {
		var f *fault.Fault
		if errors.As(err, &f) {
			return f, nil
		}
		return nil, err
	}
	if err := s.offer(l); err != nil {
		return nil, err
	}
	if err := s.process.Ready(ctx); err != nil {
		return program.SetupFault(ctx, err), nil
	}
	s.conn = acp.NewConn(s.process.Stdin, s.process.Stdout, s.client, acp.Options{
		Record: s.wire.record, Requested: s.idle.reset, Serves: s.calls.isOf, Traceparent: s.seg.Traceparent(),
		Files: s.files, Terminals: s.terms, Elicit: elicitation(s.entry, s.client),
	})
	return nil, nil
}

// offer makes the client's files and terminals, if the entry wants them to be offered.
func (s *segment) offer(l *Launch) (err error) {
	host, ok := l.Sandbox.Config.HostPath(s.seg.Sandbox.Cwd)
	if !ok || !s.entry.FS && !s.entry.Terminal {
		return nil
	}
	if s.entry.FS {
		if s.files, err = acp.NewFiles(acp.FilesOptions{
			Roots: []acp.Root{{Path: s.seg.Sandbox.Cwd, Host: host}}}); err != nil {
			return err
		}
	}
	if s.entry.Terminal {
		s.terms, err = acp.NewTerminals(acp.TerminalsOptions{Roots: []acp.Root{{Path: s.seg.Sandbox.Cwd, Host: host}},
			Start: l.startTerminal})
		s.idle.terms = s.terms
	}
	return err
}

func elicitation(entry entry, c *client) func(context.Context, acp.ElicitationRequest) (acp.ElicitationResult, error) {
	if entry.Elicitation != PolicySuspend {
		return nil // not advertised; an agent that asks all the same gets "method not found"
	}
	return c.elicit
}

// handshake makes sure that the agent speaks the protocol and takes the task's servers.
func (s *segment) handshake(ctx context.Context) *fault.Fault {
	ctx, cancel := context.WithTimeoutCause(ctx, s.bounds.handshake,
		fault.Newf(fault.Handshake, "the agent did not answer initialize within %v (handshakeTimeout)", s.bounds.handshake))
	defer cancel()
	initialized, err := s.conn.Initialize(ctx, acp.Implementation{Name: "evalrun", Version: s.opts.Version})
	if err != nil {
		return s.openingFault(ctx, err, false)
	}
	s.caps, s.authMethods = initialized.Capabilities, initialized.AuthMethods
	s.info.AgentName, s.info.AgentVersion = initialized.Agent.Name, initialized.Agent.Version
	if s.entry.AuthMethod != "" {
		if err := s.conn.Authenticate(ctx, s.entry.AuthMethod); err != nil {
			return s.openingFault(ctx, err, true)
		}
	}
	return s.servers.check(ctx, s.caps, s.launched)
}

// openingFault returns the fault that an error of the connection before the first prompt means.
// authenticating says that the entry's method was tried.
func (s *segment) openingFault(ctx context.Context, err error, authenticating bool) *fault.Fault {
	f := connFault(ctx, err)
	if f.Category == fault.Exit {
		f.Category = fault.Handshake
	}
	var refused *acp.AgentError
	if errors.As(err, &refused) && (authenticating || refused.Code == acp.CodeAuthRequired) {
		f.Message += "; " + s.authentication()
	}
	return f
}

// authentication says which methods of authentication the agent announces, and which one the entry
// names.
func (s *segment) authentication() string {
	var methods []string
	for _, m := range s.authMethods {
		text := fmt.Sprintf("%q", m.ID)
		if m.Name != "" {
			text += " (" + m.Name + ")"
		}
		if m.Type != "" {
			text += ", of the type " + m.Type
		}
		methods = append(methods, text)
	}
	announced := "the agent announces no method of authentication"
	if len(methods) > 0 {
		announced = "the agent announces: " + strings.Join(methods, "; ")
	}
	own := `its entry has no "authMethod"`
	if s.entry.AuthMethod != "" {
		own = fmt.Sprintf(`the "authMethod" of its entry is %q`, s.entry.AuthMethod)
	}
	return announced + "; " + own
}

// connFault returns the fault that an error of the connection means.
func connFault(ctx context.Context, err error) *fault.Fault {
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
