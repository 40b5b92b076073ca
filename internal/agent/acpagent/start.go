package acpagent

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/evalrun/evalrun/acp"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/agent/program"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/modelproxy"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/sandbox"
)

// modelPort is where the model is on the loopback of a space without network.
const modelPort = 18434

// openModel makes the agent's way to its model, if an endpoint with a key is configured.
func (s *segment) openModel() (*modelproxy.Session, *fault.Fault) {
	m := s.entry.Model
	if m == nil || s.opts.Models == nil {
		return nil, nil
	}
	key, unknown := s.opts.Expand(m.Key)
	if unknown != "" || key == "" && m.Key != "" {
		return nil, nil // the agent may have credentials of its own
	}
	target, unknown := s.opts.Expand(m.URL)
	if unknown != "" {
		return nil, fault.Newf(fault.Start, "the model's URL needs ${%s}, which is not set", unknown)
	}
	session, err := s.opts.Models.Open(modelproxy.Upstream{API: m.API, URL: target, Key: key})
	if err != nil {
		return nil, fault.New(fault.Start, err.Error())
	}
	return session, nil
}

// redaction is what stands before the segment's files: the run's, and before that what only this segment knows.
func (s *segment) redaction() func(io.Writer) io.WriteCloser {
	secrets := map[string]string{}
	if s.model != nil {
		secrets["MODEL_TOKEN"] = s.model.Token()
	}
	if s.access != nil {
		secrets["MCP_TOKEN"] = s.access.Token()
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

// chained closes two writers, of which the first writes into the second.
type chained struct {
	io.WriteCloser
	outer io.Closer
}

func (c *chained) Close() error { return errors.Join(c.WriteCloser.Close(), c.outer.Close()) }

// launch is how the agent's process is started, with its way to its model.
func (s *segment) launch() (*Launch, error) {
	l := &Launch{
		Entry: s.entry, Options: s.opts.Options, Place: *s.seg.Place, BaseDir: s.seg.BaseDir, RolloutID: s.marker(), Env: s.seg.Env, Stderr: s.stderr,
	}
	if l.Place.Setup == nil && len(l.Place.Space.Spawns) > 0 {
		l.Place.Setup = &sandbox.Setup{} // what stdio servers print goes to its log
	}
	if l.Place.Setup != nil {
		s.setup = program.OpenLog(filepath.Join(s.seg.Dir, FileSetup), s.redact)
		l.SetupLog = s.setup
	}
	if s.model == nil {
		return l, nil
	}
	l.ModelURL, l.ModelKey = s.model.URL(), s.model.Token()
	if space := &l.Place.Space; !space.Network && space.Isolation == sandbox.IsolationBwrap {
		socket := filepath.Join(l.Place.Sockets, "model.sock")
		if err := s.model.ServeUnix(socket); err != nil {
			return nil, err
		}
		space.Forwards = append(slices.Clone(space.Forwards), sandbox.Forward{Port: modelPort, Socket: socket})
		l.ModelURL = fmt.Sprintf("http://127.0.0.1:%d", modelPort)
	}
	return l, nil
}

// start starts the agent's process in its place. A fault says what is wrong with the agent or its place.
func (s *segment) start(ctx context.Context) (*fault.Fault, error) {
	l, err := s.launch()
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return agent.CauseFault(ctx), nil
	}
	s.process, err = l.Start()
	s.launched = l
	if err != nil {
		var f *fault.Fault
		if errors.As(err, &f) {
			return f, nil
		}
		return nil, err
	}
	if err := s.offer(&l.Place.Space); err != nil {
		return nil, err
	}
	if err := s.process.Ready(ctx); err != nil {
		return program.SetupFault(ctx, err), nil
	}
	s.conn = acp.NewConn(s.process.Stdin, s.process.Stdout, s.client, acp.Options{
		Record: s.recordLine, Files: s.files, Terminals: s.terms, Elicit: s.elicitation(),
	})
	return nil, nil
}

// offer makes what the entry wants the agent to be offered: the client's files and terminals.
func (s *segment) offer(space *sandbox.Space) (err error) {
	host, ok := space.HostPath(s.seg.Place.Cwd)
	if !ok || !s.entry.FS && !s.entry.Terminal {
		return nil
	}
	if s.entry.FS {
		if s.files, err = acp.NewFiles(acp.FilesOptions{Roots: []acp.Root{{Path: s.seg.Place.Cwd, Host: host}}}); err != nil {
			return err
		}
	}
	if s.entry.Terminal {
		s.terms, err = acp.NewTerminals(acp.TerminalsOptions{Roots: []acp.Root{{Path: s.seg.Place.Cwd, Host: host}}, Start: func(c acp.TerminalCommand) (acp.TerminalProcess, error) {
			return s.terminal(space, c)
		}})
	}
	return err
}

func (s *segment) elicitation() func(context.Context, acp.ElicitationRequest) (acp.ElicitationResult, error) {
	if s.entry.Elicitation != agent.PolicySuspend {
		return nil // not advertised; an agent that asks all the same gets "method not found"
	}
	return s.client.elicit
}

// wireLine is a line of acp.jsonl.
type wireLine struct {
	Time string `json:"time"`
	From string `json:"from"`
	Line string `json:"line"`
}

// recordLine keeps every line of the connection, up to the bound of what the agent may send.
func (s *segment) recordLine(dir acp.Direction, line []byte) {
	from := "client"
	if dir == acp.FromAgent {
		from = "agent"
		if !bytes.HasPrefix(bytes.TrimSpace(line), []byte("{")) && len(s.chatter) < program.TailBytes {
			s.chatter = append(append(s.chatter, line...), '\n')
		}
		if s.received += int64(len(line)); s.received > s.bounds.wire {
			s.client.mu.Lock()
			defer s.client.mu.Unlock()
			s.client.exceed(fault.Newf(fault.OutputLimit, "the agent sent more than %d bytes", s.bounds.wire))
			return
		}
	}
	if err := s.wire.Append(wireLine{s.opts.Now().UTC().Format(time.RFC3339Nano), from, string(line)}); err != nil && s.wireErr == nil {
		s.wireErr = err // nobody else writes there; it is looked at when the connection has ended
	}
}

// checkServers gives every server its verdict, before the first prompt.
func (s *segment) checkServers(ctx context.Context, caps acp.Capabilities) *fault.Fault {
	var f *fault.Fault
	for _, server := range s.seg.Servers {
		v := agent.ServerVerdict{Name: server.Name, Transport: string(server.Transport), Verdict: agent.VerdictSent}
		if s.access != nil && !caps.Accepts(acp.TransportHTTP) {
			v.Verdict = agent.VerdictBridged
		}
		switch why := s.unreachable(ctx, server); {
		case s.access == nil && !caps.Accepts(server.Transport):
			v.Verdict, v.Reason = agent.VerdictUnsupported, fmt.Sprintf("the agent does not advertise the transport %s (mcpCapabilities)", server.Transport)
		case why != "":
			v.Verdict, v.Reason = agent.VerdictUnreachable, why
		}
		s.info.MCPServers = append(s.info.MCPServers, v)
		if v.Reason != "" && f == nil {
			f = fault.Newf(fault.MCP, "MCP server %q: %s", server.Name, v.Reason)
		}
	}
	if ctx.Err() != nil {
		return agent.CauseFault(ctx) // and not the servers' fault
	}
	return f
}

// reachTimeout is how long a server may take to accept a connection.
const reachTimeout = 5 * time.Second

// unreachable says why an agent could not use a server: agents say nothing of it, and go on without its tools. Servers within a space without
// network are not looked at from outside.
func (s *segment) unreachable(ctx context.Context, server acp.MCPServer) string {
	if server.Transport == acp.TransportStdio {
		return s.missingProgram(server)
	}
	if slices.Contains(s.seg.Hosted, server.Name) || !s.seg.Place.Space.Network && s.seg.Place.Space.Isolation == sandbox.IsolationBwrap {
		return ""
	}
	u, err := url.Parse(server.URL)
	if err != nil || u.Host == "" {
		return "its url is none"
	}
	address := u.Host
	if u.Port() == "" {
		address = net.JoinHostPort(u.Hostname(), map[bool]string{true: "443", false: "80"}[u.Scheme == "https"])
	}
	dialer := net.Dialer{Timeout: reachTimeout}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return "it cannot be reached: " + err.Error()
	}
	_ = conn.Close() // nothing was sent
	return ""
}

// missingProgram says why the program of a stdio server cannot be started where the agent lives.
func (s *segment) missingProgram(server acp.MCPServer) string {
	space, path := &s.launched.Place.Space, ""
	for _, kv := range s.launched.Environ {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			path = v
		}
	}
	for _, kv := range server.Env {
		if kv.Name == "PATH" {
			path = kv.Value
		}
	}
	folders := filepath.SplitList(path)
	if strings.Contains(server.Command, "/") {
		folders = []string{""}
	}
	why := ""
	for _, folder := range folders {
		inside := filepath.Join(folder, server.Command)
		if !filepath.IsAbs(inside) {
			inside = filepath.Join(cmp.Or(server.Cwd, s.seg.Place.Cwd), inside)
		}
		host, bound := space.HostPath(inside)
		problem := program.NotExecutable(host)
		if problem == "" && !bound && !space.Shows(inside) {
			problem = "is not visible where the agent lives: name its folder in the agent's \"visible\", or use --isolation process"
		}
		switch {
		case problem == "":
			return ""
		case problem != program.Missing && why == "", len(folders) == 1:
			why = inside + " " + problem
		}
	}
	if why == "" {
		why = fmt.Sprintf("there is none of that name in the %d folders of PATH", len(folders))
	}
	return fmt.Sprintf("its program %q cannot be started: %s", server.Command, why)
}

// invisibleFiles names the arguments of stdio servers that are files of this machine which the agent's environment does not show.
func (s *segment) invisibleFiles() (hint string) {
	if s.launched == nil {
		return ""
	}
	for _, server := range s.seg.Servers {
		for _, arg := range server.Args {
			if !filepath.IsAbs(arg) || server.Transport != acp.TransportStdio {
				continue
			}
			host, bound := s.launched.Place.Space.HostPath(arg)
			if info, err := os.Stat(host); err == nil && info.Mode().IsRegular() && !bound && !s.launched.Place.Space.Shows(arg) {
				hint += fmt.Sprintf("; %s, an argument of MCP server %q, is a file of this machine that is not visible where the agent lives: name its folder in the agent's \"visible\", or use --isolation process", arg, server.Name)
			}
		}
	}
	return hint
}
