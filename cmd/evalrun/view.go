package main

import (
	"cmp"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/internal/serve"
	"github.com/evalrun/evalrun/internal/service"
	"github.com/evalrun/evalrun/runner"
)

func viewCommand(g *globals) *cobra.Command {
	o := &viewFlags{}
	cmd := &cobra.Command{
		Use:   "view [RUN]",
		Short: "Show runs in a browser, with an inbox of questions",
		Long: `Show the runs of the store as web pages: their results, why rollouts failed, and what they are
waiting for. The pages update while runs go on. Only this machine can reach them, by a link that
works once and is opened in a browser. view executes nothing itself; Ctrl-C ends it.`,
		Args: between(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return g.withStore(cmd, false, func(s *runner.Store) error { return o.show(cmd, g, s, "/") })
			}
			return g.withRun(cmd, args[0], func(s *runner.Store, run runner.Run) error {
				return o.show(cmd, g, s, "/runs/"+run.ID)
			})
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.noBrowser, "no-browser", false, "print the link and open no browser")
	f.StringVar(&o.as, "as", "", "`WHO` answers questions; you by default")
	f.IntVar(&o.port, "port", 0, "listen on port `N` of this machine; 0 takes a free one")
	return cmd
}

// viewFlags are the flags of view.
type viewFlags struct {
	noBrowser bool
	port      int
	as        string
}

// show serves the pages until it is told to end.
func (o *viewFlags) show(cmd *cobra.Command, g *globals, s *runner.Store, page string) error {
	level, err := g.level()
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: level}))
	server, err := serve.New(serve.Options{Service: service.New(s, service.Config{}, service.Options{}),
		Person: cmp.Or(o.as, userName()), Log: log})
	if err != nil {
		return internal(err)
	}
	ln, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: o.port})
	if err != nil {
		return usageError("--port: %w", err)
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	link := "http://" + ln.Addr().String() + server.Link(page)
	printf(stdout(cmd), "%s\n", link)
	if !o.noBrowser {
		if err := openBrowser(link); err != nil && !g.quiet {
			printf(cmd.ErrOrStderr(), "no browser could be started (%v); open the link yourself\n", err)
		}
	}
	return internal(server.Serve(ln, ctx.Done()))
}

// openBrowser opens a page in the browser of this machine's user.
func openBrowser(link string) error {
	program := "xdg-open"
	if runtime.GOOS == "darwin" {
		program = "open"
	}
	cmd := exec.Command(program, link)
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { _ = cmd.Wait() }() // the browser may keep it alive
	return nil
}
