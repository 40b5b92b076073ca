package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/engine"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/tasks"
)

// The flags that take a tolerance.
const (
	flagFailOnError          = "fail-on-error"
	flagFailOnEvaluatorError = "fail-on-evaluator-error"
)

// workFlags are the flags of the commands that run rollouts.
type workFlags struct {
	concurrency int
	output      string
	junit       string
	summary     string
	events      string
	wait        bool
	waitTimeout time.Duration
	env         []string
	envFiles    []string
	failOnError string
	// failOnEvaluatorError and allowUnscored say how much may be missing.
	failOnEvaluatorError string
	allowUnscored        bool
	allowSuspended       bool
	// stay is engine.Options.Stay.
	stay bool
}

func (w *workFlags) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.IntVarP(&w.concurrency, "concurrency", "j", 4, "run `N` agents at once")
	f.StringVarP(&w.output, "output", "o", "", "also write the results document to `FILE`")
	f.StringVar(&w.junit, "junit", "", "write JUnit XML to `FILE`")
	f.StringVar(&w.summary, "summary", "", "write a Markdown summary to `FILE` ($GITHUB_STEP_SUMMARY gets one if it is set)")
	f.BoolVar(&w.wait, "wait", false, "go on until the run is final")
	f.DurationVar(&w.waitTimeout, "wait-timeout", 0, "with --wait: stop waiting after `DURATION` (10m, 2h)")
	f.StringVar(&w.failOnError, flagFailOnError, "0", "let `N` rollouts fault, or a share P%")
	f.StringVar(&w.failOnEvaluatorError, flagFailOnEvaluatorError, "0", "let evaluators fail `N` times, or in a share P% of what they were to score")
	f.BoolVar(&w.allowUnscored, "allow-unscored", false, "accept evaluations that no evaluator could score")
	f.BoolVar(&w.allowSuspended, "allow-suspended", false, "judge the thresholds although rollouts are suspended: 1 if one is lost, 5 if one is undecided, else 0")
	w.registerEvents(cmd)
}

// registerEvents registers what executor has, too.
func (w *workFlags) registerEvents(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&w.events, "events", "", "append the events of all processes to `FILE` while the command runs (JSON Lines)")
	f.StringArrayVar(&w.env, "env", nil, "pass the environment variable `NAME`: ${NAME} gives its value, which is redacted (repeatable)")
	f.StringArrayVar(&w.envFiles, "env-file", nil, "pass the variables of `FILE`, lines of NAME=VALUE (repeatable)")
}

// check finds what is wrong with the flags before anything begins.
func (w *workFlags) check() error {
	switch {
	case w.waitTimeout < 0:
		return usageError("--wait-timeout: expected a duration above 0, got %v", w.waitTimeout)
	case w.waitTimeout > 0 && !w.wait:
		return usageError("--wait-timeout has a meaning only with --wait")
	}
	for flag, path := range w.outputs() {
		if flag == "events" {
			continue // it is opened at once, and may lie in a store that is still to be made
		}
		if err := checkFolder(flag, path); err != nil {
			return err
		}
	}
	_, err := parseTolerance(flagFailOnError, w.failOnError)
	_, err2 := parseTolerance(flagFailOnEvaluatorError, w.failOnEvaluatorError)
	return errors.Join(err, err2, w.checkConcurrency())
}

// outputs are the files that are written, by flag.
func (w *workFlags) outputs() map[string]string {
	return map[string]string{"output": w.output, "junit": w.junit, "summary": w.summary, "events": w.events}
}

// refuseInputs makes sure that nothing is written over what is read.
func (w *workFlags) refuseInputs(inputs ...string) error {
	for flag, path := range w.outputs() {
		if err := refuseInput(flag, path, append(inputs, w.envFiles...)...); err != nil {
			return err
		}
	}
	return nil
}

func refuseInput(flag, output string, inputs ...string) error {
	for _, in := range inputs {
		if tasks.IsDir(in) {
			in = filepath.Join(in, "task.toml")
		}
		if output != "" && isFile(output) && sameFile(in, output) {
			return usageError("--%s %s: that is an input file, which would be lost; name another one", flag, output)
		}
	}
	return nil
}

// checkFolder makes sure that there is a folder for a file that is written when all is done.
func checkFolder(flag, path string) error {
	if path == "" {
		return nil
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return usageError("--%s %s: expected a file, got a folder", flag, path)
	}
	if info, err := os.Stat(filepath.Dir(path)); err != nil || !info.IsDir() {
		return usageError("--%s %s: there is no folder %s; make it first", flag, path, filepath.Dir(path))
	}
	return nil
}

func (w *workFlags) checkConcurrency() error {
	if w.concurrency < 1 {
		return usageError("--concurrency: expected at least 1, got %d", w.concurrency)
	}
	return nil
}

// environment is what was passed: its names, and where their values are.
type environment struct {
	passed []string
	values map[string]string
}

func (w *workFlags) environment() (environment, error) {
	e := environment{values: map[string]string{}}
	for _, path := range w.envFiles {
		data, err := input.ReadFile(path, maxSmallFile)
		if err != nil {
			return e, usageError("--env-file: %w", unreadable(path, err))
		}
		for i, line := range strings.Split(string(data), "\n") {
			line = strings.TrimSpace(line)
			if line == "" || strings.HasPrefix(line, "#") {
				continue
			}
			name, value, ok := strings.Cut(strings.TrimPrefix(line, "export "), "=")
			if name = strings.TrimSpace(name); !ok || name == "" {
				return e, usageError("%s:%d:1: expected NAME=VALUE", path, i+1)
			}
			e.passed, e.values[name] = append(e.passed, name), unquote(strings.TrimSpace(value))
		}
	}
	for _, name := range w.env {
		value, ok := os.LookupEnv(name)
		if !ok {
			return e, usageError("--env %s: the variable is not set", name)
		}
		e.passed, e.values[name] = append(e.passed, name), value
	}
	return e, nil
}

// unquote takes one pair of quotes off a value.
func unquote(s string) string {
	if len(s) >= 2 && (s[0] == '"' || s[0] == '\'') && s[len(s)-1] == s[0] {
		return s[1 : len(s)-1]
	}
	return s
}

func (e environment) resolve(name string) (string, bool) {
	if v, ok := e.values[name]; ok {
		return v, true
	}
	return os.LookupEnv(name)
}

// lookup gives the values that were passed, and no others: what a task may name.
func (e environment) lookup(name string) (string, bool) {
	v, ok := e.values[name]
	return v, ok
}

// secrets are the values that are never written.
func (e environment) secrets() map[string]string {
	all := redact.FromEnviron(os.Environ(), e.passed)
	for name, value := range e.values {
		all[name] = value
	}
	return all
}

// checkVariables makes sure that no rollout is lost because the command was not given what its agent needs.
func checkVariables(agents []agent.Entry, env environment) error {
	for _, a := range agents {
		for _, name := range a.Required() {
			if _, ok := env.resolve(name); !ok {
				return usageError("the agent %s needs ${%s}, which is not set; pass it in the environment or in an --env-file", a.Name, name)
			}
		}
		// What was passed may be credentials of the agent's own.
		if names := a.MissingKey(env.resolve); names != nil && len(env.passed) == 0 {
			return usageError("the agent %s has no key for its model: set %s, in the environment or in an --env-file; or pass it credentials of its own with --env NAME or with its entry's \"env\"", a.Name, strings.Join(names, " or "))
		}
	}
	return nil
}

// work runs a run until it is idle or final, reports, and says how it ended.
func (w *workFlags) work(cmd *cobra.Command, g *globals, s *store.SQLite, runID string, env environment, until engine.Until, check bool) error {
	plan, err := planOf(cmd.Context(), s, runID)
	if err != nil {
		return err
	}
	red := plan.Redactor(env.secrets(), env.resolve)
	out, err := w.newOutput(cmd, g, s, red)
	if err != nil {
		return err
	}
	run, err := s.Run(cmd.Context(), runID)
	if err != nil {
		return internal(err)
	}
	if !run.Final() {
		if err := checkVariables(plan.Agents, env); err != nil {
			return err
		}
	}
	if err := out.showProgress(cmd.Context(), run); err != nil {
		return err
	}
	ended, workErr := w.runUntil(cmd, g, s, runID, env, until, check, out)
	if errors.Is(workErr, store.ErrMoved) {
		return internal(errors.Join(workErr, out.close())) // there is nothing to write to any more
	}
	reportErr := out.finish(runID, w)
	if err := errors.Join(workErr, reportErr); err != nil {
		return internal(err)
	}
	return w.verdict(cmd.Context(), s, runID, plan, red, ended)
}

// newRunner makes the runner of a run, or if runID is empty of the whole store.
func (w *workFlags) newRunner(g *globals, s *store.SQLite, runID string, env environment, out *output) (*engine.Runner, error) {
	logger, err := g.logger(out)
	if err != nil {
		return nil, err
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, internal(err)
	}
	dir, err := os.Getwd()
	if err != nil {
		return nil, internal(err)
	}
	lease, err := leaseForTests()
	if err != nil {
		return nil, err
	}
	return engine.New(engine.Options{Store: s, RunID: runID, Concurrency: w.concurrency, WorkDir: dir, Executable: exe,
		Version: version(), Resolve: env.resolve, Secrets: env.secrets(), Events: out.event, Logger: logger, Lease: lease, Stay: w.stay}), nil
}

// runUntil runs the runner under the signals: the first lets what runs finish, the second ends it.
func (w *workFlags) runUntil(cmd *cobra.Command, g *globals, s *store.SQLite, runID string, env environment, until engine.Until, check bool, out *output) (interrupted bool, err error) {
	r, err := w.newRunner(g, s, runID, env, out)
	if err != nil {
		return false, err
	}
	if check {
		if err := r.CheckNow(cmd.Context()); err != nil {
			return false, err
		}
	}
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	var signals atomic.Int32
	stop := onSignals(func(count int) {
		signals.Store(int32(count))
		switch count {
		case 1:
			out.say("interrupted: letting the running agents finish; once more ends them, the run can be resumed either way")
			r.Stop()
		case 2:
			out.say("ending the running agents")
			cancel()
		default:
			os.Exit(exitInterrupted) // somebody is in a hurry; the store is as after a crash
		}
	})
	defer stop()
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx, until) }()
	timeout := make(<-chan time.Time)
	if w.wait && w.waitTimeout > 0 {
		timeout = time.After(w.waitTimeout)
	}
	tick, stopTicker := out.ticker()
	defer stopTicker()
	for {
		select {
		case err := <-done:
			return signals.Load() > 0, err
		case <-timeout:
			out.say("--wait-timeout: %v have passed", w.waitTimeout)
			r.Stop()
		case <-tick:
			out.redraw()
		}
	}
}

// executable is how the program is called in a command that is shown.
const executable = "evalrun"

// resumeLine is the command that would go on with a run.
func resumeLine(s *store.SQLite, runID string) string {
	return executable + " resume" + storeFlag(s) + " " + shellQuote(runID)
}

// storeFlag is what a command that is typed here needs to find the store; nothing if it finds it without.
func storeFlag(s *store.SQLite) string {
	if dir, err := new(globals).storeDir(); err == nil {
		if abs, err := filepath.Abs(dir); err == nil && abs == s.Dir() {
			return ""
		}
	}
	return " --store " + shellQuote(shortPath(s.Dir()))
}

// shortPath is a path as one would type it from here.
func shortPath(path string) string {
	if dir, err := os.Getwd(); err == nil {
		if rel, err := filepath.Rel(dir, path); err == nil && len(rel) < len(path) {
			return rel
		}
	}
	return path
}

func shellQuote(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=@%+,") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
