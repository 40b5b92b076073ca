package main

import (
	"context"
	"errors"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/runner"
)

// notWatched are the flags that say what one run is, and have no meaning for one after the other.
var notWatched = []string{"run-id", "retry-of", "failed-of", "last-failed", "dry-run", "detach", "dataset", "registry", "json",
	"rebuild"}

// checkWatch finds the flags that do not go with --watch.
func (f *runFlags) checkWatch(cmd *cobra.Command) error {
	if !f.watch {
		return nil
	}
	for _, name := range notWatched {
		if flag := cmd.Flag(name); flag != nil && flag.Changed {
			return usageError("--watch does not go with --%s; leave one of them out", name)
		}
	}
	return nil
}

// watching runs an eval set again and again, whenever its files change.
type watching struct {
	f     *runFlags
	cmd   *cobra.Command
	g     *globals
	w     workFlags
	o     runner.RunOptions
	paths []string
	s     *runner.Store
	files *runner.Watch
	// last is the run whose results people see, and standings what they are.
	last      string
	standings runner.Standings
}

func (f *runFlags) watchFiles(cmd *cobra.Command, g *globals, w workFlags, o runner.RunOptions, paths []string) error {
	f.load.WatchSession = runner.NewSession()
	return g.withStore(cmd, true, func(s *runner.Store) (err error) {
		defer func() { err = errors.Join(err, s.EndSession(f.load.WatchSession)) }()
		files, err := runner.NewWatch(slices.Concat(paths, f.load.Agents),
			slices.Concat(f.load.Leave, []string{s.Dir()}))
		if err != nil {
			return err
		}
		v := &watching{f: f, cmd: cmd, g: g, w: w, o: o, paths: paths, s: s, files: files}
		return v.loop()
	})
}

func (v *watching) loop() error {
	ctx, stop := signal.NotifyContext(v.cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	for {
		if err := v.files.Begin(); err != nil {
			return err
		}
		err := v.once()
		if code := codeOf(err); ctx.Err() != nil || err != nil && code == exitInternal {
			return err
		}
		v.tell(err)
		changed, own, err := v.files.Ended()
		if err != nil {
			return err
		}
		for _, path := range own {
			v.say("%s changes whenever the agents run, and is no longer watched", redact.Line(shortPath(path)))
			v.f.load.Leave = append(v.f.load.Leave, path)
		}
		if len(changed) > 0 && v.files.Restless() {
			v.say("%s changed while the agents ran, as some did during each of the last runs: that begins no run",
				shortList(changed))
			changed = nil
		}
		if len(changed) == 0 {
			v.say("watching for changes; Ctrl-C ends")
			if changed, err = v.files.Next(ctx); err != nil || ctx.Err() != nil {
				return err
			}
		}
		if err := v.supersede(ctx); err != nil {
			return err
		}
		v.say("%s changed: %s", time.Now().Format(time.TimeOnly), shortList(changed))
	}
}

// once makes a run of the files as they are.
func (v *watching) once() error {
	set, err := v.f.loadSet(v.cmd, v.g, v.paths)
	if set != nil {
		err = errors.Join(err, v.files.Add(set))
	}
	if err != nil {
		return err
	}
	if err := errors.Join(v.w.refuseInputs(set.Files()...), v.w.checkEvents()); err != nil {
		return err
	}
	create := v.f.create
	create.CommandLine = commandLine(v.cmd, v.paths, v.f.load.Command)
	run, err := v.s.Create(v.cmd.Context(), set, create)
	if err != nil {
		return err
	}
	err = v.w.work(v.cmd, v.g, v.s, run.RunID, v.o, false)
	if code := codeOf(err); err != nil && (code == exitUsage || code == exitInternal) {
		return err
	}
	v.last = run.RunID
	standings, e := v.s.Standings(context.WithoutCancel(v.cmd.Context()), run.RunID, v.o.Variables)
	if e != nil {
		return errors.Join(err, internal(e))
	}
	const most = 10
	lines := standings.Since(v.standings)
	for i, line := range lines {
		if i == most {
			v.say("… and %d more that differ", len(lines)-most)
			break
		}
		v.say("%s", redact.Line(line))
	}
	v.standings = standings
	return err
}

// tell says why nothing was run, or what the verdict is, unless the table has said it.
func (v *watching) tell(err error) {
	if err == nil || err.Error() == "" {
		return
	}
	printf(v.cmd.ErrOrStderr(), "%s%s\n", prefix(err), strings.TrimSpace(redact.Terminal(err.Error())))
	if codeOf(err) == exitUsage && v.last != "" {
		v.say("nothing was run; the results of run %s stay", v.last)
	}
}

// supersede cancels what the run before still waits for.
func (v *watching) supersede(ctx context.Context) error {
	if v.last == "" {
		return nil
	}
	n, err := v.s.StopWaiting(ctx, v.last)
	if n > 0 {
		v.say("%s of run %s still waited, and %s cancelled", counted(n, "rollout"), v.last,
			map[bool]string{true: "was", false: "were"}[n == 1])
	}
	return err
}

func (v *watching) say(format string, args ...any) {
	if !v.g.quiet {
		printf(v.cmd.ErrOrStderr(), "evalrun: "+format+"\n", args...)
	}
}

// shortList names some of the files that have changed.
func shortList(paths []string) string {
	const most = 5
	var names []string
	for i, path := range paths {
		if i == most {
			names = append(names, counted(len(paths)-most, "more file"))
			break
		}
		names = append(names, redact.Line(shortPath(path)))
	}
	return strings.Join(names, ", ")
}
