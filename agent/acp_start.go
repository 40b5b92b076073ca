package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/evalrun/evalrun/acp"
	"github.com/evalrun/evalrun/modelproxy"
	"github.com/evalrun/evalrun/redact"
	"github.com/evalrun/evalrun/sandbox"
)

// modelPort is where the model is on the loopback of a space without network.
const modelPort = 18434

// openModel makes the agent's way to its model, if an endpoint with a key is configured.
func (s *acpSegment) openModel() (*modelproxy.Session, error) {
	m := s.entry.Model
	if m == nil || s.opts.Models == nil {
		return nil, nil
	}
	key, unknown := s.opts.expand(m.Key)
	if unknown != "" || key == "" && m.Key != "" {
		return nil, nil // the agent may have credentials of its own
	}
	target, unknown := s.opts.expand(m.URL)
	if unknown != "" {
		return nil, fmt.Errorf("the model's URL needs ${%s}, which is not set", unknown)
	}
	return s.opts.Models.Open(modelproxy.Upstream{API: m.API, URL: target, Key: key})
}

// redaction is what stands before the segment's files: the run's, and before that what only this segment knows.
func (s *acpSegment) redaction() func(io.Writer) io.WriteCloser {
	secrets := map[string]string{}
	if s.model != nil {
		secrets["MODEL_TOKEN"] = s.model.Token()
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

// start starts the agent's process in its place. A fault says what is wrong with the agent or its place.
func (s *acpSegment) start(ctx context.Context) (*Fault, error) {
	space := s.seg.Place.Space
	modelURL := ""
	if s.model != nil {
		modelURL = s.model.URL()
		if !space.Network && space.Isolation == sandbox.IsolationBwrap {
			socket := filepath.Join(s.seg.Place.Sockets, "model.sock")
			if err := s.model.ServeUnix(socket); err != nil {
				return nil, err
			}
			space.Forwards = append(slices.Clone(space.Forwards), sandbox.Forward{Port: modelPort, Socket: socket})
			modelURL = fmt.Sprintf("http://127.0.0.1:%d", modelPort)
		}
	}
	fill := s.placeholders(modelURL)
	env, fault := s.environ(fill)
	if fault != nil {
		return fault, nil
	}
	if err := s.writeFiles(&space, fill); err != nil {
		return nil, err
	}
	path, fault := findProgram(s.entry.Command[0], filepath.Join(s.seg.BaseDir, s.entry.Cwd), env)
	if fault != nil {
		return fault, nil
	}
	space.Visible = append(slices.Clone(space.Visible), visible(path, s.entry.Command[1:], env)...)
	for _, dir := range s.entry.Visible {
		space.Visible = append(space.Visible, filepath.Clean(dir))
	}
	command := sandbox.Command{
		RolloutID: s.marker(), Path: path, Args: s.entry.Command, Dir: s.seg.Place.Cwd, Env: env,
		Interactive: true, Stderr: s.through(s.stderr), Grace: s.opts.Grace, Space: &space, Setup: s.seg.Place.Setup, Executable: s.seg.Place.Executable,
	}
	if command.Setup != nil {
		setup := *command.Setup
		setup.Log = s.through(&logFile{path: filepath.Join(s.seg.Dir, FileSetup)})
		command.Setup = &setup
	}
	if ctx.Err() != nil {
		return causeFault(ctx), nil
	}
	var err error
	if s.process, err = sandbox.Start(command); err != nil {
		if fault := startFault(command, err); fault != nil {
			return fault, nil
		}
		return nil, err
	}
	if err := s.offer(&space); err != nil {
		return nil, err
	}
	if err := s.process.Ready(ctx); err != nil {
		return setupFault(ctx, err), nil
	}
	s.conn = acp.NewConn(s.process.Stdin, s.process.Stdout, s.client, acp.Options{
		Record: s.recordLine, Files: s.files, Terminals: s.terms, Elicit: s.elicitation(),
	})
	return nil, nil
}

// setupFault is the fault of a process that was not started in its place.
func setupFault(ctx context.Context, err error) *Fault {
	var failed *sandbox.SetupError
	switch {
	case ctx.Err() != nil:
		return causeFault(ctx)
	case errors.As(err, &failed) && failed.Stage == sandbox.StageMain:
		return &Fault{FaultStart, err.Error()}
	case errors.As(err, &failed):
		message := err.Error()
		if text := cleanTail([]byte(failed.Output), tailBytes); text != "" {
			message += "; it printed:\n" + text
		}
		return &Fault{FaultSetup, message}
	}
	return &Fault{FaultSetup, err.Error()}
}

// placeholders give the values of {home}, {model}, {modelURL} and {modelKey}; those for which there is nothing are missing.
func (s *acpSegment) placeholders(modelURL string) map[string]string {
	fill := map[string]string{"{home}": s.seg.Place.Home}
	if s.model != nil {
		fill["{modelURL}"], fill["{modelKey}"] = modelURL, s.model.Token()
		if s.entry.Model.Name != "" {
			fill["{model}"] = s.entry.Model.Name
		}
	}
	return fill
}

var placeholderNames = []string{"{home}", "{model}", "{modelURL}", "{modelKey}"}

// fillIn replaces the placeholders of a value; false if it names one for which there is nothing.
func fillIn(value string, fill map[string]string) (string, bool) {
	for _, name := range placeholderNames {
		v, ok := fill[name]
		if !ok && strings.Contains(value, name) {
			return "", false
		}
		value = strings.ReplaceAll(value, name, v)
	}
	return value, true
}

// environ is the whole environment of the agent: what every program needs, that of the place, what was passed to the run, and the entry's own.
func (s *acpSegment) environ(fill map[string]string) ([]string, *Fault) {
	home := s.seg.Place.Home
	env := []string{
		"PATH=" + cmp.Or(os.Getenv("PATH"), "/usr/local/bin:/usr/bin:/bin"), "LANG=C.UTF-8", "TERM=dumb", "NO_COLOR=1", "HOME=" + home,
		"XDG_CONFIG_HOME=" + home + "/.config", "XDG_DATA_HOME=" + home + "/.local/share", "XDG_STATE_HOME=" + home + "/.local/state",
		"XDG_CACHE_HOME=" + home + "/.cache", "TMPDIR=" + home + "/tmp",
	}
	env = append(env, s.seg.Place.Env...)
	hidden := map[string]bool{}
	if s.model != nil { // the proxy has the key; the agent must not
		for _, m := range variable.FindAllStringSubmatch(s.entry.Model.Key, -1) {
			hidden[m[1]] = true
		}
	}
	for _, e := range s.seg.Env {
		if name, _, _ := strings.Cut(e, "="); !hidden[name] {
			env = append(env, e)
		}
	}
	for _, name := range sortedKeys(s.entry.Env) {
		value, unknown := s.opts.expand(s.entry.Env[name])
		if unknown != "" {
			return nil, &Fault{FaultStart, fmt.Sprintf("the agent's environment variable %s needs ${%s}, which is not set", name, unknown)}
		}
		if value, ok := fillIn(value, fill); ok {
			env = append(env, name+"="+value)
		}
	}
	return env, nil
}

// writeFiles writes the entry's files into the agent's home, each when it starts there for the first time, and makes the usual folders.
func (s *acpSegment) writeFiles(space *sandbox.Space, fill map[string]string) error {
	host, ok := space.HostPath(s.seg.Place.Home)
	if !ok {
		return fmt.Errorf("the home %s is not in the agent's space", s.seg.Place.Home)
	}
	root, err := os.OpenRoot(host) // the agent may have left links
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // a folder that was only looked through
	for _, dir := range []string{"tmp", ".config", ".cache", ".local/share", ".local/state"} {
		if err := root.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	for _, name := range sortedKeys(s.entry.Files) {
		content, ok := fillIn(s.entry.Files[name], fill)
		if !ok {
			continue
		}
		if err := root.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			return err
		}
		// Written anew for each process: the way to the model has another token.
		if err := root.WriteFile(name, []byte(content), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// offer makes what the entry wants the agent to be offered: the client's files and terminals.
func (s *acpSegment) offer(space *sandbox.Space) (err error) {
	host, ok := space.HostPath(s.seg.Place.Cwd)
	if !ok || !s.entry.FS && !s.entry.Terminal {
		return nil
	}
	if s.entry.FS {
		if s.files, err = acp.NewFiles(acp.FilesOptions{Roots: []string{host}}); err != nil {
			return err
		}
	}
	if s.entry.Terminal {
		s.terms, err = acp.NewTerminals(acp.TerminalsOptions{Roots: []string{host}, Start: func(c acp.TerminalCommand) (acp.TerminalProcess, error) {
			return s.terminal(space, c)
		}})
	}
	return err
}

func (s *acpSegment) elicitation() func(context.Context, acp.ElicitationRequest) (acp.ElicitationResult, error) {
	if s.entry.Elicitation != PolicySuspend {
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

// recordLine keeps every line of the connection.
func (s *acpSegment) recordLine(dir acp.Direction, line []byte) {
	from := "agent"
	if dir == acp.ToAgent {
		from = "client"
	}
	if err := s.wire.write(wireLine{s.opts.Now().UTC().Format(time.RFC3339Nano), from, string(line)}); err != nil && s.wireErr == nil {
		s.wireErr = err // nobody else writes there; it is looked at when the connection has ended
	}
}

// checkServers gives every server its verdict, before the first prompt.
func (s *acpSegment) checkServers(ctx context.Context, caps acp.Capabilities) *Fault {
	var fault *Fault
	for _, server := range s.seg.Servers {
		v := ServerVerdict{Name: server.Name, Transport: string(server.Transport), Verdict: VerdictSent}
		switch why := s.unreachable(ctx, server); {
		case !caps.Accepts(server.Transport):
			v.Verdict, v.Reason = VerdictUnsupported, fmt.Sprintf("the agent does not advertise the transport %s (mcpCapabilities)", server.Transport)
		case why != "":
			v.Verdict, v.Reason = VerdictUnreachable, why
		}
		s.info.MCPServers = append(s.info.MCPServers, v)
		if v.Verdict != VerdictSent && fault == nil {
			fault = &Fault{FaultMCP, fmt.Sprintf("MCP server %q: %s", server.Name, v.Reason)}
		}
	}
	return fault
}

// reachTimeout is how long a server may take to accept a connection.
const reachTimeout = 5 * time.Second

// unreachable says why an agent could not use a server: agents say nothing of it, and go on without its tools. Servers within a space without
// network are not looked at from outside.
func (s *acpSegment) unreachable(ctx context.Context, server acp.MCPServer) string {
	if server.Transport == acp.TransportStdio || slices.Contains(s.seg.Hosted, server.Name) || !s.seg.Place.Space.Network && s.seg.Place.Space.Isolation == sandbox.IsolationBwrap {
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

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }
