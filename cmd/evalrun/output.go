package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/internal/durable"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/report"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/workspace"
	"github.com/evalrun/evalrun/schemas"
)

// redrawEvery is how often a live display is drawn anew.
const redrawEvery = 100 * time.Millisecond

// output is what a command that works shows while it works and leaves behind: progress, the event stream of --events, and the
// reports at the end. Its methods may be called from several goroutines.
type output struct {
	store  *store.SQLite
	redact *redact.Redactor
	stderr io.Writer
	stdout io.Writer
	json   bool
	quiet  bool

	mu    sync.Mutex
	live  *report.Live
	lines *report.Log
	// progress is what they show; of the runs in told it knows what was before their first event here.
	progress *report.Execution
	told     map[string]bool
	events   *os.File
	eventErr error
	// redactRun, if not nil, is for a run what redact is for all of them.
	redactRun func(runID string) (*redact.Redactor, error)
	// onEvent, if not nil, is called with every event as well.
	onEvent func(store.Event)
}

func (w *workFlags) newOutput(cmd *cobra.Command, g *globals, s *store.SQLite, red *redact.Redactor) (*output, error) {
	o := &output{store: s, redact: red, stderr: cmd.ErrOrStderr(), stdout: stdout(cmd), json: g.json, quiet: g.quiet}
	if w.events != "" {
		f, err := os.OpenFile(w.events, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			return nil, usageError("--events %s: cannot be opened: %w", w.events, errors.Unwrap(err))
		}
		o.events = f
	}
	return o, nil
}

// showProgress makes the display of a run, or with the zero Run of all that are worked on.
func (o *output) showProgress(ctx context.Context, run store.Run) error {
	if o.quiet {
		return nil
	}
	o.progress, o.told = report.NewExecution(run), map[string]bool{run.ID: true}
	if err := o.progress.Load(ctx, storeEvents{o.store}); err != nil {
		return internal(err)
	}
	opts := report.ProgressOptions{Redact: o.redact}
	if f, ok := o.stderr.(*os.File); ok && isatty.IsTerminal(f.Fd()) && os.Getenv("TERM") != "dumb" && os.Getenv("CI") == "" {
		opts.Width = func() int { return columns(f) }
		o.live = report.NewLive(o.stderr, o.progress, opts)
		return nil
	}
	o.lines = report.NewLog(o.stderr, o.progress, opts)
	return nil
}

// columns is how wide a terminal is at the moment.
func columns(terminal *os.File) int {
	if size, err := unix.IoctlGetWinsize(int(terminal.Fd()), unix.TIOCGWINSZ); err == nil && size.Col > 0 {
		return int(size.Col)
	}
	return 80
}

// event shows and records an event.
func (o *output) event(e store.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	err := o.tellEarlier(e)
	switch {
	case o.live != nil:
		err = errors.Join(err, o.live.Event(report.EventOf(e)))
	case o.lines != nil:
		err = errors.Join(err, o.lines.Event(report.EventOf(e)))
	}
	if o.events != nil {
		line, marshalErr := json.Marshal(e)
		_, writeErr := o.events.Write(append(o.redact.JSON(line), '\n'))
		err = errors.Join(err, marshalErr, writeErr)
	}
	if err != nil && o.eventErr == nil {
		o.eventErr = err
		_, _ = o.writeLocked(fmt.Appendf(nil, "evalrun: the events cannot be shown or written: %v\n", err)) // said again at the end
	}
	if o.onEvent != nil {
		o.onEvent(e)
	}
}

// tellEarlier gives the display the events that a run had before its first one here: they have the names of the rollouts.
func (o *output) tellEarlier(e store.Event) error {
	if o.progress == nil || o.told[e.RunID] {
		return nil
	}
	o.told[e.RunID] = true
	const batch = 2000
	for seq := int64(0); seq < e.Seq-1; {
		events, err := o.store.Events(context.Background(), e.RunID, seq, batch)
		if err != nil || len(events) == 0 {
			return err
		}
		for _, earlier := range events {
			if seq = earlier.Seq; seq < e.Seq {
				o.progress.Add(report.EventOf(earlier))
			}
		}
	}
	return nil
}

// ticker fires when a live display is to be drawn anew; it is nil without one.
func (o *output) ticker() (<-chan time.Time, func()) {
	if o.live == nil {
		return nil, func() {}
	}
	t := time.NewTicker(redrawEvery)
	return t.C, t.Stop
}

func (o *output) redraw() {
	o.mu.Lock()
	defer o.mu.Unlock()
	_ = o.live.Tick() // the next one will show it
}

// Write writes a log line or a message without breaking the display.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.writeLocked(p)
}

// writeLocked is Write for whoever holds o.mu.
func (o *output) writeLocked(p []byte) (int, error) {
	clean := o.redact.Bytes(p)
	var err error
	if o.live != nil {
		_, err = o.live.Write(clean)
	} else {
		_, err = o.stderr.Write(clean)
	}
	return len(p), err
}

func (o *output) say(format string, args ...any) {
	printf(o, "evalrun: "+format+"\n", args...)
}

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

// saveDocument brings the results document in the store up to date, and -o.
func (o *output) saveDocument(ctx context.Context, runID, also string) error {
	if err := o.store.InPlace(); err != nil {
		return err
	}
	red := o.redact
	if o.redactRun != nil {
		var err error
		if red, err = o.redactRun(runID); err != nil {
			return err
		}
	}
	own := filepath.Join(workspace.RunDir(o.store.Dir(), runID), "results.json")
	err := report.SaveResults(ctx, o.store, runID, own, red)
	if also != "" && !sameFile(own, also) {
		err = errors.Join(err, report.SaveResults(ctx, o.store, runID, also, red))
	}
	return err
}

func sameFile(a, b string) bool {
	x, errA := os.Stat(a)
	y, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(x, y)
}

// finish writes everything that a command leaves behind: the results document, the reports that were asked for, and what people see.
func (o *output) finish(runID string, w *workFlags) error {
	ctx := context.Background() // also after an interruption
	err := errors.Join(o.close(), o.saveDocument(ctx, runID, w.output))
	return errors.Join(err, report.FromStore(ctx, o.store, runID, o.redact, func(r *report.Report) error { return o.write(r, w) }))
}

func (o *output) write(r *report.Report, w *workFlags) error {
	command := func(*schemas.Rollout) string { return resumeLine(o.store, r.RunID) }
	var errs []error
	if w.junit != "" {
		errs = append(errs, durable.WriteOutput(w.junit, 0o644, r.WriteJUnit))
	}
	markdown := func(to io.Writer) error { return r.WriteMarkdown(to, command) }
	if w.summary != "" {
		errs = append(errs, durable.WriteOutput(w.summary, 0o644, markdown))
	}
	if step := os.Getenv("GITHUB_STEP_SUMMARY"); step != "" && !sameFile(step, w.summary) {
		errs = append(errs, appendFile(step, markdown))
	}
	switch {
	case o.json:
		errs = append(errs, r.WriteResults(o.stdout))
	case !o.quiet:
		errs = append(errs, r.WriteTable(o.stderr, command))
		if r.Summary.Suspended > 0 {
			printf(o.stderr, "\nWhat is waited for, and how to answer:\n  %s triggers%s %s\n", executable, storeFlag(o.store), shellQuote(r.RunID))
		}
		printf(o.stderr, "\nresults: %s\n", shortPath(filepath.Join(workspace.RunDir(o.store.Dir(), r.RunID), "results.json")))
	}
	return errors.Join(errs...)
}

func appendFile(path string, write func(io.Writer) error) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// storeEvents are the events of a store.
type storeEvents struct{ store *store.SQLite }

// Events implements report.EventLog.
func (s storeEvents) Events(ctx context.Context, runID string, after int64, limit int) (out []schemas.Event, err error) {
	events, err := s.store.Events(ctx, runID, after, limit)
	for _, e := range events {
		out = append(out, report.EventOf(e))
	}
	return out, err
}
