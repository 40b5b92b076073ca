package probe

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/evalrun/evalrun/acp"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/agent/acpagent"
	"github.com/evalrun/evalrun/internal/peers/fakemcp"
	"github.com/evalrun/evalrun/internal/peers/fakemodel"
	"github.com/evalrun/evalrun/internal/sandbox"
)

const (
	// serverName is the name under which agents are given the probe's MCP server.
	serverName = "evalrun"
	// toolsPatience is how long an agent may take to ask a server for its tools; a prompt before
	// that would measure something else.
	toolsPatience = 10 * time.Second
	// modelPatience is how long an agent may take to call its model. The fixture of an agent has no
	// model.
	modelPatience = 5 * time.Second
	// tellPatience is how long an agent may take to tell others of a cancel.
	tellPatience = 2 * time.Second
)

// rig has everything that one check needs around the agent.
type rig struct {
	o     *Options
	about *Agent
	// dir is a folder of this machine; the agent sees parts of it under other paths.
	dir     string
	sandbox agent.Sandbox
	model   *fakemodel.Server
	servers []*fakemcp.HTTPServer
	agents  []*process
	stderr  tail
}

func newRig(o *Options, parent string, about *Agent) (*rig, error) {
	dir, err := os.MkdirTemp(parent, "")
	if err != nil {
		return nil, err
	}
	r := &rig{o: o, about: about, dir: dir}
	cfg := sandbox.Config{Isolation: o.Isolation, Network: true}
	for _, b := range []struct{ folder, inside string }{{"home", "/home/agent"}, {"work", "/app"}, {"logs", "/logs"}} {
		if err := os.Mkdir(filepath.Join(dir, b.folder), 0o700); err != nil {
			return nil, err
		}
		cfg.Binds = append(cfg.Binds, sandbox.Bind{Host: filepath.Join(dir, b.folder), Inside: b.inside, Writable: true})
	}
	r.sandbox = agent.Sandbox{Config: cfg, Home: cfg.Path("/home/agent"), Cwd: cfg.Path("/app"), Executable: o.Executable}
	r.model, err = fakemodel.Start(fakemodel.Options{})
	return r, err
}

// close ends everything. The folder goes with its parent.
func (r *rig) close() error {
	var errs []error
	for _, a := range r.agents {
		errs = append(errs, a.end(0))
	}
	for _, s := range r.servers {
		errs = append(errs, s.Close())
	}
	return errors.Join(append(errs, r.model.Close())...)
}

// explain adds the end of the agent's log to an error.
func (r *rig) explain(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	if text := r.stderr.String(); text != "" {
		return fmt.Errorf("%w; the agent's stderr ends with:\n%s", err, text)
	}
	return err
}

// process is one process of the agent, with its messages.
type process struct {
	r           *rig
	marker      string
	process     *sandbox.Process
	conn        *acp.Conn
	initialized acp.InitializeResult
	// started is how long it took from the start of the program to its answer to initialize.
	started time.Duration
	// onEnd, if not nil, is called when the process has ended, before the processes that it left
	// behind are ended.
	onEnd  func()
	turns  sync.WaitGroup
	ending sync.Once
	exit   sandbox.Exit
	endErr error

	mu                 sync.Mutex
	updates            []acp.Update
	calls              acp.ToolCalls
	permissionRequests []acp.PermissionRequest
}

// start starts the agent and shakes hands with it. The rig ends it.
func (r *rig) start(ctx context.Context) (*process, error) {
	a := &process{r: r, marker: "probe/" + rand.Text()}
	l := acpagent.Launch{
		Entry: r.o.Entry, Sandbox: r.sandbox, BaseDir: r.o.BaseDir, Marker: a.marker, ModelURL: r.model.URL(),
		ModelKey: "sk-of-the-scripted-model",
		Stderr:   &r.stderr, Ended: func() {
			if a.onEnd != nil {
				a.onEnd()
			}
		},
	}
	began := time.Now()
	var err error
	if a.process, err = l.Start(ctx); err != nil {
		return nil, err
	}
	r.agents = append(r.agents, a)
	if err := a.process.Ready(ctx); err != nil {
		return nil, err
	}
	a.conn = acp.NewConn(a.process.Stdin, a.process.Stdout, a, acp.Options{})
	if a.initialized, err = a.conn.Initialize(ctx, acp.Implementation{Name: "evalrun", Version: r.o.Version}); err != nil {
		return nil, err
	}
	a.started = time.Since(began)
	r.about.Name, r.about.Version, r.about.Initialize = a.initialized.Agent.Name, a.initialized.Agent.Version,
		a.initialized.Raw
	if method := acpagent.SettingsOf(r.o.Entry).AuthMethod; method != "" {
		return a, a.conn.Authenticate(ctx, method)
	}
	return a, nil
}

var errOver = errors.New("the check is over")

// end ends the process, which may go by itself within patience, and waits until it is gone.
func (a *process) end(patience time.Duration) error {
	a.ending.Do(func() {
		a.process.End(errOver, patience)
		a.exit, a.endErr = a.process.Wait(context.Background())
		if a.conn != nil {
			_ = a.conn.Close() // stdin is closed already
			a.conn.Wait()
		}
		a.turns.Wait()
	})
	return a.endErr
}

// open begins a session with servers, and sets what the entry says of it.
func (a *process) open(ctx context.Context, servers ...*server) (sessionID string, took time.Duration, err error) {
	began := time.Now()
	s, err := a.conn.NewSession(ctx, a.params(servers))
	took = time.Since(began)
	if err != nil {
		return "", took, err
	}
	return s.ID, took, a.configure(ctx, s.ID)
}

func (a *process) params(servers []*server) acp.SessionParams {
	p := acp.SessionParams{Cwd: a.r.sandbox.Cwd}
	for _, s := range servers {
		p.MCPServers = append(p.MCPServers, s.declared)
	}
	return p
}

func (a *process) configure(ctx context.Context, sessionID string) error {
	if mode := acpagent.SettingsOf(a.r.o.Entry).Mode; mode != "" {
		if err := a.conn.SetMode(ctx, sessionID, mode); err != nil {
			return err
		}
	}
	for id, value := range acpagent.SettingsOf(a.r.o.Entry).ConfigOptions {
		if _, err := a.conn.SetConfigOption(ctx, sessionID, id, value); err != nil {
			return err
		}
	}
	return nil
}

// turn is a prompt with the requests that it has caused to the model.
type turn struct {
	a *process
	// word is in the prompt and nowhere else.
	word   string
	result acp.PromptResult
	took   time.Duration
}

// prompt runs a turn. The agent gets the text with a word by which the requests to the model are
// recognised.
func (a *process) prompt(ctx context.Context, sessionID, text string) (*turn, error) {
	t := &turn{a: a, word: rand.Text()}
	return t, t.run(ctx, sessionID, text)
}

func (t *turn) run(ctx context.Context, sessionID, text string) (err error) {
	began := time.Now()
	t.result, err = t.a.conn.Prompt(ctx, sessionID, acp.Text("This is "+t.word+".\n"+text))
	t.took = time.Since(began)
	return err
}

// toldUsage reports whether the agent has said what the turn used, or how full its context is.
func (t *turn) toldUsage() bool {
	t.a.mu.Lock()
	defer t.a.mu.Unlock()
	return len(t.result.Usage) > 0 || slices.ContainsFunc(t.a.updates, func(u acp.Update) bool { return u.Kind == acp.UpdateUsage })
}

// requests returns the requests of the agent's own loop for this turn. Agents also ask for a title
// and the like, but offer no tools there.
func (t *turn) requests() []fakemodel.Request {
	all := t.a.r.model.Requests()
	if loop := slices.DeleteFunc(slices.Clone(all), func(r fakemodel.Request) bool { return !t.asks(r) }); len(loop) > 0 {
		return loop
	}
	// The agent has no tools at all.
	return slices.DeleteFunc(all, func(r fakemodel.Request) bool { return !t.mentions(r) })
}

// asks reports whether a request is one of the agent's loop for this turn, and offers tools.
func (t *turn) asks(r fakemodel.Request) bool { return len(r.Tools) > 0 && t.mentions(r) }

func (t *turn) mentions(r fakemodel.Request) bool {
	return r.API != "" && slices.ContainsFunc(r.Messages, func(m fakemodel.Message) bool {
		return strings.Contains(m.Text, t.word)
	})
}

// Update implements [acp.Handler].
func (a *process) Update(u acp.Update) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.updates = append(a.updates, u)
	a.calls.Apply(u)
}

// RequestPermission implements [acp.Handler]. It allows everything.
func (a *process) RequestPermission(_ context.Context, req acp.PermissionRequest) (acp.PermissionOutcome, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.permissionRequests = append(a.permissionRequests, req)
	return acp.Allow(req.Options), nil
}

// tail keeps the end of the text that is written to it.
type tail struct {
	mu  sync.Mutex
	end []byte
}

func (t *tail) Write(p []byte) (int, error) {
	const most = 2 << 10
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end = append(t.end, p...)
	t.end = t.end[max(0, len(t.end)-most):]
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(strings.ToValidUTF8(string(t.end), ""))
}
