package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/durable"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/report"
	"github.com/evalrun/evalrun/internal/service"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/runner"
	"github.com/evalrun/evalrun/schemas"
)

// output shows progress while a command works, writes the event stream of --events, and writes the
// reports at the end. Its methods may be called from several goroutines.
type output struct {
	store     *runner.Store
	variables runner.Variables
	stderr    io.Writer
	stdout    io.Writer
	json      bool
	quiet     bool
	// agents is the number of agents that run at once.
	agents int

	mu    sync.Mutex
	live  *report.Live
	lines *report.Log
	// progress is the state that the display shows. caughtUp has the runs whose earlier events it
	// knows.
	progress *report.Execution
	caughtUp map[string]bool
	events   *os.File
	eventErr error
}

func (w *watchFlags) newOutput(cmd *cobra.Command, g *globals, s *runner.Store, v runner.Variables) (*output, error) {
	o := &output{store: s, variables: v, stderr: cmd.ErrOrStderr(), stdout: stdout(cmd), json: g.json, quiet: g.quiet,
		agents: w.concurrency}
	if w.events != "" {
		f, err := os.OpenFile(w.events, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			return nil, usageError("--events %s: cannot be opened: %w", w.events, errors.Unwrap(err))
		}
		o.events = f
	}
	return o, nil
}

// Events implements report.EventLog.
func (o *output) Events(ctx context.Context, runID string, after int64, limit int) ([]schemas.Event, error) {
	return o.store.Events(ctx, runID, o.variables, after, limit)
}

// showProgress creates the display of a run. The zero Run stands for all runs that are worked on.
func (o *output) showProgress(ctx context.Context, run runner.Run) error {
	if o.quiet {
		return nil
	}
	o.progress = report.NewExecution(run.ID, run.Seq, store.Counts(run.Counts))
	o.caughtUp = map[string]bool{run.ID: true}
	if run.ID != "" {
		if err := o.learnPass(ctx, run.ID); err != nil {
			return internal(err)
		}
	}
	if err := o.progress.Load(ctx, o); err != nil {
		return internal(err)
	}
	opts := report.ProgressOptions{Look: func() (report.Standing, error) { return o.standing(run.ID) }}
	if f := terminal(o.stderr); f != nil && os.Getenv("CI") == "" {
		opts.Width, opts.Color = func() int { return columns(f) }, os.Getenv("NO_COLOR") == ""
		o.live = report.NewLive(o.stderr, o.progress, opts)
		return nil
	}
	o.lines = report.NewLog(o.stderr, o.progress, opts)
	return nil
}

// standing counts the work and the waits of a run, or of all runs if runID is empty.
func (o *output) standing(runID string) (report.Standing, error) {
	s, err := service.New(o.store, service.Config{}, service.Options{}).Standing(context.Background(), runID)
	return report.StandingOf(s, o.agents), err
}

// learnPass tells the display the passing score of a run.
func (o *output) learnPass(ctx context.Context, runID string) error {
	pass, err := o.store.PassingScore(ctx, runID)
	if err == nil {
		o.progress.SetPass(runID, pass)
	}
	return err
}

// columns is the present width of a terminal.
func columns(terminal *os.File) int {
	if size, err := unix.IoctlGetWinsize(int(terminal.Fd()), unix.TIOCGWINSZ); err == nil && size.Col > 0 {
		return int(size.Col)
	}
	return 80
}

// event shows and records an event.
func (o *output) event(e schemas.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	err := o.catchUp(e)
	switch {
	case o.live != nil:
		err = errors.Join(err, o.live.Event(e))
	case o.lines != nil:
		err = errors.Join(err, o.lines.Event(e))
	}
	if o.events != nil {
		line, marshalErr := json.Marshal(e)
		_, writeErr := o.events.Write(append(line, '\n'))
		err = errors.Join(err, marshalErr, writeErr)
	}
	if err != nil && o.eventErr == nil {
		o.eventErr = err
		// close returns the error again at the end.
		_, _ = o.writeLocked(fmt.Appendf(nil, "evalrun: the events cannot be shown or written: %v\n", err))
	}
}

// catchUp gives the display the earlier events of a run, before the first one that the command
// sees. They name its rollouts.
func (o *output) catchUp(e schemas.Event) error {
	if o.progress == nil || o.caughtUp[e.RunID] {
		return nil
	}
	o.caughtUp[e.RunID] = true
	if err := o.learnPass(context.Background(), e.RunID); err != nil {
		return err
	}
	const batch = 2000
	for seq := int64(0); seq < e.Seq-1; {
		events, err := o.Events(context.Background(), e.RunID, seq, batch)
		if err != nil || len(events) == 0 {
			return err
		}
		for _, earlier := range events {
			if seq = earlier.Seq; seq < e.Seq {
				o.progress.Add(earlier)
			}
		}
	}
	return nil
}

// ticking lets the display go on without events, until the returned function is called.
func (o *output) ticking() (stop func()) {
	var tick func() (time.Duration, error)
	switch {
	case o.live != nil:
		tick = o.live.Tick
	case o.lines != nil:
		tick = o.lines.Tick
	default:
		return func() {}
	}
	quit := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		timer := time.NewTimer(0)
		defer timer.Stop()
		for {
			select {
			case <-quit:
				return
			case <-timer.C:
				o.mu.Lock()
				next, _ := tick() // the next tick shows a failed write again
				o.mu.Unlock()
				timer.Reset(next)
			}
		}
	})
	return func() {
		close(quit)
		done.Wait()
	}
}

// Write writes a log line or a message without breaking the display.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.writeLocked(p)
}

// writeLocked is Write for callers that hold o.mu.
func (o *output) writeLocked(p []byte) (int, error) {
	var err error
	if o.live != nil {
		_, err = o.live.Write(p)
	} else {
		_, err = o.stderr.Write(p)
	}
	return len(p), err
}

// say prints a line that is not an event.
func (o *output) say(text string) { printf(o, "evalrun: %s\n", text) }

// close ends the display and the event stream.
func (o *output) close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	err := o.eventErr
	if o.live != nil {
		err = errors.Join(err, o.live.Close())
		o.live = nil
	}
	if o.events != nil {
		err = errors.Join(err, o.events.Close())
		o.events = nil
	}
	return err
}

// finish ends the display and writes the requested reports. It then prints the result for people,
// with the verdict before the summary. It returns also failed, which is what the work failed with.
func (o *output) finish(runID string, w *workFlags, under eval.FailUnder, j runner.Judgement, verdict,
	failed error) error {
	err := errors.Join(failed, o.close())
	ctx := context.Background() // also after an interruption
	return errors.Join(err, o.store.ReportUnder(ctx, runID, o.variables, under, func(r *runner.Report) error {
		r.Judgement, r.Accept.NotRun = &j, w.allowNotRun
		if failed == nil || o.hasDocument(r) {
			r.Last = "results: " + shortPath(o.store.DocumentPath(runID))
		}
		return o.write(r, runID, w, verdict)
	}))
}

// hasDocument reports whether the results document in the store is at least as new as a report.
func (o *output) hasDocument(r *runner.Report) bool {
	head, err := o.store.DocumentHead(r.Head().RunID)
	return err == nil && head.Revision >= r.Head().Revision
}

// showsTable reports whether people see a table at the end.
func (o *output) showsTable() bool { return !o.json && !o.quiet }

// writeFlag writes the file that a flag names.
func writeFlag(flag, path string, write func(io.Writer) error) error {
	if err := durable.WriteOutput(path, 0o644, write); err != nil {
		return fmt.Errorf("--%s %s could not be written: %w", flag, path, err)
	}
	return nil
}

func (o *output) write(r *runner.Report, runID string, w *workFlags, verdict error) error {
	present(r, o.store, runID, o.stderr)
	r.Failures = w.failures.n
	var errs []error
	if w.junit != "" {
		errs = append(errs, writeFlag("junit", w.junit, func(to io.Writer) error { return r.Write(to, "junit") }))
	}
	markdown := func(to io.Writer) error { return r.Write(to, "markdown") }
	if w.summary != "" {
		errs = append(errs, writeFlag("summary", w.summary, markdown))
	}
	if step := os.Getenv("GITHUB_STEP_SUMMARY"); step != "" && !durable.SameFile(step, w.summary) {
		errs = append(errs, addSummary(step, runID, markdown))
	}
	switch {
	case o.json:
		errs = append(errs, durable.WriteWhole(o.stdout, func(w io.Writer) error { return r.Write(w, "json") }))
	case o.showsTable():
		if verdict != nil && verdict.Error() != "" {
			r.Last = strings.TrimPrefix(r.Last+"\nevalrun: ", "\n") + strings.TrimSpace(redact.Terminal(verdict.Error()))
		}
		errs = append(errs, durable.WriteWhole(o.stderr, func(w io.Writer) error { return r.Write(w, "table") }))
	}
	return errors.Join(errs...)
}

// present sets the names of files and commands in a report as one types them here, and fits it to
// its output. A run of a store is named by its id, any other by its document. Without a name there
// are no commands.
func present(r *runner.Report, s *runner.Store, name string, to io.Writer) {
	if name != "" {
		in := ""
		if s != nil {
			in = storeFlag(s)
		}
		r.ResumeCommand = executable + " resume" + in + " " + shellQuote(name)
		r.TriggersCommand = executable + " triggers" + in + " " + shellQuote(name)
	}
	if dir, err := os.Getwd(); err == nil {
		r.Dir = dir
	}
	if f := terminal(to); f != nil {
		r.Width, r.Color = columns(f), os.Getenv("NO_COLOR") == ""
	}
}

// terminal returns the terminal that a text goes to. It is nil if the text goes elsewhere, or if
// the terminal knows no escapes.
func terminal(to io.Writer) *os.File {
	if f, ok := to.(*os.File); ok && isatty.IsTerminal(f.Fd()) && os.Getenv("TERM") != "dumb" {
		return f
	}
	return nil
}
