package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/internal/serve"
	"github.com/evalrun/evalrun/internal/serve/jobs"
	"github.com/evalrun/evalrun/internal/serve/meshprovider"
	"github.com/evalrun/evalrun/internal/service"
	"github.com/evalrun/evalrun/runner"
)

// serveFlags are the flags of `evalrun serve`.
type serveFlags struct {
	workFlags
	sandbox    sandboxFlags
	config     string
	address    serveAddress
	noExecutor bool
	rate       float64
	retention  time.Duration
}

func serveCommand(g *globals) *cobra.Command {
	var o serveFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Let others start and watch runs over HTTP, and execute them",
		Long: `Let others start runs, watch them, answer their questions and read their results over HTTP. The same
process executes the runs of the store, as evalrun executor does. --config names the file with the
agents, jobs and eval sets that others may use. Every request needs a token, even from this machine;
evalrun token new makes one. /v1/openapi.json describes the interface, docs/serve.md explains it.

SIGTERM ends it: no new request is accepted, waiting requests are answered, running agents finish.
Everything that was acknowledged is in the store, so another serve or executor continues the work,
even after a kill -9.`,
		Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(o.checkConcurrency(), o.refuseInputs(), o.address.check()); err != nil {
				return err
			}
			return g.withStore(cmd, true, func(s *runner.Store) error { return o.run(cmd, g, s) })
		},
	}
	o.watchFlags.register(cmd)
	o.sandbox.register(cmd)
	o.address.register(cmd)
	f := cmd.Flags()
	f.StringVar(&o.config, "config", "", "offer the agents, jobs and eval sets of `FILE` (serve.yaml)")
	f.BoolVar(&o.noExecutor, "no-executor", false, "only take requests; an executor elsewhere, or POST /v1/tick, executes the runs")
	f.DurationVar(&o.retention, "job-retention", jobs.DefaultRetention,
		"forget jobs of /jobs `DURATION` after their end; their runs stay; 0 keeps them")
	f.Float64Var(&o.rate, "rate", serve.DefaultRate, "take at most `N` requests a second of each token")
	return cmd
}

// run serves until it is told to end.
func (o *serveFlags) run(cmd *cobra.Command, g *globals, s *runner.Store) (err error) {
	telemetry, err := o.telemetry()
	if err != nil {
		return err
	}
	svc, err := o.service(cmd, g, s)
	if err != nil {
		return err
	}
	audit, auditFile, err := serve.OpenAudit(s.Dir())
	if err != nil {
		return internal(err)
	}
	defer func() { err = errors.Join(err, internal(auditFile.Close())) }()
	out, err := o.newOutput(cmd, g, s, svc.variables)
	if err != nil {
		return err
	}
	x := newExecutor(o.noExecutor)
	level, err := g.level()
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: level}))
	ctx, drain, stop := out.endOnSignals(cmd.Context(), "stopping: letting the running agents finish; once more ends them",
		"")
	defer stop()
	work := runner.Options{Concurrency: o.concurrency, Variables: svc.variables, Drain: drain, Events: out.event,
		Notice: out.say, Log: out, Telemetry: telemetry, Notifications: svc.notifications()}
	options := serve.Options{Service: svc.Service, PublicURL: o.address.public, Rate: o.rate, Person: userName(),
		Ready: x.ready, Audit: audit, Log: log}
	var running sync.WaitGroup
	if o.noExecutor {
		options.Tick = func(request context.Context, maxTime time.Duration) (runner.Ticked, error) {
			running.Add(1)
			defer running.Done()
			working, end := context.WithCancel(request)
			defer end()
			defer context.AfterFunc(ctx, end)()
			return s.Tick(working, work, maxTime)
		}
	}
	server, err := serve.New(options)
	if err != nil {
		return internal(err)
	}
	ln, err := o.address.open()
	if err != nil {
		return err
	}
	work.PublicURL = o.address.url(ln.Addr())
	if !g.quiet {
		out.say("serving " + o.address.url(ln.Addr()))
		out.say("pages: " + o.address.url(ln.Addr()) + server.Link("/") + " (works once)")
	}
	ended := make(chan struct{})
	var executed error
	providing, stopProviding := context.WithCancel(ctx)
	if mesh := svc.Config().Mesh; mesh != nil {
		running.Go(func() {
			meshprovider.Run(providing, meshprovider.Options{Service: svc.Service, Mesh: *mesh, Drain: drain, Log: log})
		})
	}
	running.Go(func() {
		defer close(ended)
		defer stopProviding() // until then it tells the mesh which jobs have ended
		executed = x.run(ctx, s, runner.ExecuteOptions{Options: work})
	})
	keeping, stopKeeping := context.WithCancel(ctx)
	running.Go(func() { jobs.Keep(keeping, svc.Service, o.retention, log) })
	served := server.Serve(ln, either(drain, ended))
	stopKeeping()
	if served != nil { // the server could not go on listening
		stop()
	}
	running.Wait()
	return internal(errors.Join(executed, served, out.close()))
}

// configured is a service with the variables that it was given.
type configured struct {
	*service.Service
	variables runner.Variables
}

// notifications are the targets in the configuration, which are told of all runs.
func (c configured) notifications() runner.Notifications {
	config := c.Config()
	return runner.Notifications{Targets: config.Notify, Dir: config.Catalog.Dir}
}

func (o *serveFlags) service(cmd *cobra.Command, g *globals, s *runner.Store) (configured, error) {
	var c configured
	var err error
	if c.variables, err = o.variables(); err != nil {
		return c, err
	}
	sandbox, err := o.sandbox.options()
	if err != nil {
		return c, err
	}
	var config service.Config
	if o.config != "" {
		if config, err = service.ReadConfig(o.config); err != nil {
			return c, err
		}
	}
	printWarnings(cmd.ErrOrStderr(), g, config.Warnings)
	c.Service = service.New(s, config, service.Options{Variables: c.variables, Sandbox: sandbox})
	return c, c.notifications().Check(c.variables)
}

func printWarnings(w io.Writer, g *globals, warnings string) {
	if warnings != "" && !g.quiet {
		printf(w, "%s\n", warnings)
	}
}

// either returns a channel that is closed when one of two channels is.
func either(a, b <-chan struct{}) <-chan struct{} {
	out := make(chan struct{})
	go func() {
		defer close(out)
		select {
		case <-a:
		case <-b:
		}
	}()
	return out
}

// executor is the executor of a serving process.
type executor struct {
	off bool

	mu    sync.Mutex
	ended bool
}

func newExecutor(off bool) *executor { return &executor{off: off} }

// ready returns why nothing is executed, if something should be.
func (x *executor) ready() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.ended && !x.off {
		return errors.New("the executor has ended")
	}
	return nil
}

func (x *executor) run(ctx context.Context, s *runner.Store, o runner.ExecuteOptions) error {
	if x.off {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		go func() {
			<-either(ctx.Done(), o.Drain)
			cancel()
		}()
		return s.Notify(ctx, o.Options)
	}
	err := s.Execute(ctx, o)
	x.mu.Lock()
	x.ended = true
	x.mu.Unlock()
	return err
}

// serveAddress is the address on which the server listens, and the one by which others reach it.
type serveAddress struct {
	listen      string
	publicURL   string
	cert, key   string
	behindProxy bool

	public *url.URL
}

func (a *serveAddress) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&a.listen, "listen", "127.0.0.1:8484",
		"listen on `ADDRESS`; a port of 0 takes a free one, and one of $PORT that of this variable. "+
			"Other machines reach it only with --tls-cert, or with --behind-proxy")
	f.StringVar(&a.publicURL, "public-url", "",
		"the `URL` under which others reach the server, for webhooks and for checks of the host")
	f.StringVar(&a.cert, "tls-cert", "", "serve HTTPS with the certificates of `FILE` (PEM)")
	f.StringVar(&a.key, "tls-key", "", "the key of --tls-cert: `FILE` (PEM)")
	f.BoolVar(&a.behindProxy, "behind-proxy", false,
		"listen on other addresses without TLS, because a proxy in front of the server does TLS; needs --public-url")
}

// check makes sure that nobody can listen in.
func (a *serveAddress) check() error {
	if (a.cert == "") != (a.key == "") {
		return usageError("expected both --tls-cert and --tls-key, or neither")
	}
	if a.publicURL != "" {
		u, err := url.Parse(a.publicURL)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" ||
			u.User != nil {
			return usageError("--public-url: expected a URL such as https://evals.example.com, got %q", a.publicURL)
		}
		a.public = u
	}
	host, port, err := net.SplitHostPort(a.listen)
	if err == nil && port == "$PORT" { // of a platform that names it, in an image without a shell
		if port = os.Getenv("PORT"); port == "" {
			return usageError("--listen %s: the variable PORT is not set", a.listen)
		}
		a.listen = net.JoinHostPort(host, port)
	}
	if err != nil {
		return usageError("--listen: expected HOST:PORT, got %q", a.listen)
	}
	if a.behindProxy && a.public == nil {
		return usageError("--behind-proxy needs --public-url, the URL of the proxy")
	}
	if ip, err := netip.ParseAddr(host); (err != nil || !ip.IsLoopback()) && host != "localhost" && a.cert == "" &&
		!a.behindProxy {
		return usageError("--listen %s: other machines would reach it without encryption; give --tls-cert and --tls-key, or --behind-proxy",
			a.listen)
	}
	return nil
}
