package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/durable"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/runner"
	"github.com/evalrun/evalrun/tasks"
)

// watchFlags are the flags of every command that works on rollouts.
type watchFlags struct {
	concurrency int
	events      string
	env         []string
	envFiles    []string
	otlp        string
	otlpContent bool
}

func (w *watchFlags) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.IntVarP(&w.concurrency, "concurrency", "j", runner.DefaultConcurrency, "run `N` agents at once")
	w.registerEnv(cmd, "")
	titled(f, titleAgents)
	f.StringVar(&w.events, "events", "",
		"append the events of all processes to `FILE` while the command runs (JSON Lines)")
	f.StringVar(&w.otlp, "otlp", "",
		"send traces and metrics to the OpenTelemetry collector at `URL` (OTLP over HTTP, as http://localhost:4318); env: to that of $OTEL_EXPORTER_OTLP_ENDPOINT")
	f.BoolVar(&w.otlpContent, "otlp-content", false, "with --otlp: also send inputs and outputs")
	titled(f, titleWritten)
}

// telemetry is the collector of traces and metrics, or nil if there is none.
func (w *watchFlags) telemetry() (*runner.Telemetry, error) {
	if w.otlp == "" {
		if w.otlpContent {
			return nil, usageError("--otlp-content has a meaning only with --otlp")
		}
		return nil, nil
	}
	t, err := runner.ParseTelemetry(w.otlp, w.otlpContent, os.LookupEnv)
	if err != nil {
		return nil, usageError("--otlp: %w", err)
	}
	return t, nil
}

func (w *watchFlags) registerEnv(cmd *cobra.Command, when string) {
	f := cmd.Flags()
	if when != "" {
		f.StringArrayVar(&w.env, "env", nil, when+"pass the environment variable `NAME` (repeatable)")
		f.StringArrayVar(&w.envFiles, "env-file", nil, when+"pass the variables of `FILE` (repeatable)")
		return
	}
	f.StringArrayVar(&w.env, "env", nil,
		"pass the environment variable `NAME`: ${NAME} gives its value, which is redacted (repeatable)")
	f.StringArrayVar(&w.envFiles, "env-file", nil, "pass the variables of `FILE`, lines of NAME=VALUE (repeatable)")
}

func (w *watchFlags) checkConcurrency() error {
	if w.concurrency < 1 {
		return usageError("--concurrency: expected at least 1, got %d", w.concurrency)
	}
	return nil
}

func (w *watchFlags) variables() (runner.Variables, error) {
	v, err := runner.ReadVariables(w.env, w.envFiles)
	return v, internal(err)
}

// waitFlag is the value of --wait, which must be part of the same word: --wait=jobs.
type waitFlag string

// The values of --wait.
const (
	waitAll  waitFlag = "all"
	waitJobs waitFlag = "jobs"
)

func (w *waitFlag) String() string { return string(*w) }

// Type is empty, so that help shows --wait[=all] and not a second word.
func (w *waitFlag) Type() string { return "" }

// Set takes any value; options reports an invalid one.
func (w *waitFlag) Set(value string) error {
	*w = waitFlag(value)
	return nil
}

// waitArgs is args, but also reports --wait jobs in two words as an error.
func (w *workFlags) waitArgs(args cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, words []string) error {
		for _, word := range words {
			if value := waitFlag(word); w.wait != "" && (value == waitAll || value == waitJobs) && !input.IsFile(word) &&
				!tasks.IsDir(word) {
				return usageError("--wait %s: expected one word, --wait=%s", word, word)
			}
		}
		return args(cmd, words)
	}
}

// workFlags are the flags of the commands that work on one run.
type workFlags struct {
	watchFlags
	output               string
	junit                string
	summary              string
	wait                 waitFlag
	waitTimeout          time.Duration
	failOnError          string
	failOnEvaluatorError string
	failUnder            []string
	allowUnscored        bool
	allowNotRun          bool
	allowSuspended       bool
	failures             failuresFlag
}

func (w *workFlags) register(cmd *cobra.Command) {
	w.watchFlags.register(cmd)
	w.registerVerdict(cmd)
	f := cmd.Flags()
	f.Var(&w.wait, "wait", "wait until the run is final; --wait=jobs: until only people have to answer (exit code 75)")
	f.Lookup("wait").NoOptDefVal = string(waitAll)
	f.DurationVar(&w.waitTimeout, "wait-timeout", 0, "with --wait: stop waiting after `DURATION` (10m, 2h)")
	titled(f, titleWaiting)
}

// registerVerdict registers the flags of reports, and of what is accepted of a run.
func (w *workFlags) registerVerdict(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&w.output, "output", "o", "", "also write the results document to `FILE`")
	w.registerReports(cmd)
	w.registerAccept(cmd)
	f := cmd.Flags()
	f.BoolVar(&w.allowSuspended, "allow-suspended", false,
		"judge the thresholds even if rollouts are suspended: exit code 1 if one is not met, 5 if one is undecided, else 0")
	titled(f, titleVerdict)
}

// registerReports registers the flags of reports that are written at the end.
func (w *workFlags) registerReports(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&w.junit, "junit", "", "write JUnit XML to `FILE`")
	f.StringVar(&w.summary, "summary", "",
		"write a Markdown summary to `FILE` ($GITHUB_STEP_SUMMARY gets one if it is set)")
	w.failures.register(cmd)
	titled(f, titleWritten)
}

// registerAccept registers the flags that say what is accepted of a run that has ended.
func (w *workFlags) registerAccept(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringArrayVar(&w.failUnder, "fail-under", nil,
		"fail if the score is less than `N`, from 0 to 1, or that of one evaluator (EVALUATOR=N); takes the place of the set's threshold (repeatable)")
	f.StringVar(&w.failOnError, "fail-on-error", "0", "let `N` rollouts fault, or a share P%")
	f.StringVar(&w.failOnEvaluatorError, "fail-on-evaluator-error", "0",
		"let evaluators fail `N` times, or in a share P% of what they were to score")
	f.BoolVar(&w.allowUnscored, "allow-unscored", false, "accept evaluations that no evaluator could score")
	f.BoolVar(&w.allowNotRun, "allow-not-run", false,
		"accept evaluators that were not run (no key, no Python, not supported), and judge the thresholds without them")
	titled(f, titleVerdict)
}

// options returns the options that the flags give, checked before anything begins.
func (w *workFlags) options() (o runner.RunOptions, err error) {
	switch {
	case w.waitTimeout < 0:
		return o, usageError("--wait-timeout: expected a duration above 0, got %v", w.waitTimeout)
	case !slices.Contains([]waitFlag{"", waitAll, waitJobs}, w.wait):
		return o, usageError("--wait: expected --wait alone or --wait=jobs, got --wait=%s", w.wait)
	case w.waitTimeout > 0 && w.wait == "":
		return o, usageError("--wait-timeout has a meaning only with --wait")
	}
	for flag, path := range w.outputs() {
		if flag == "events" {
			continue // its folder may be that of a store that does not exist yet; see checkEvents
		}
		if err := checkFolder(flag, path); err != nil {
			return o, err
		}
	}
	o = runner.RunOptions{Options: runner.Options{Concurrency: w.concurrency}, Wait: w.wait == waitAll,
		WaitJobs: w.wait == waitJobs, WaitTimeout: w.waitTimeout, Document: w.output,
		Accept: runner.Accept{Unscored: w.allowUnscored, NotRun: w.allowNotRun, Suspended: w.allowSuspended}}
	var err1, err2, err3, err4 error
	o.Accept.Faulted, err1 = tolerance("fail-on-error", w.failOnError)
	o.Accept.EvaluatorErrors, err2 = tolerance("fail-on-evaluator-error", w.failOnEvaluatorError)
	o.Telemetry, err3 = w.telemetry()
	if o.FailUnder, err4 = eval.ParseFailUnder(w.failUnder); err4 != nil {
		err4 = usageError("--fail-under: %w", err4)
	}
	return o, errors.Join(err1, err2, err3, err4, w.checkConcurrency())
}

func tolerance(flag, text string) (runner.Tolerance, error) {
	t, err := runner.ParseTolerance(text)
	if err != nil {
		return t, usageError("--%s: %w", flag, err)
	}
	return t, nil
}

// outputs returns the files that are written, by flag.
func (w *workFlags) outputs() map[string]string {
	return map[string]string{"output": w.output, "junit": w.junit, "summary": w.summary, "events": w.events}
}

// written returns the files that the command writes, its streams among them if they go to files and
// that can be seen.
func (w *workFlags) written() (paths []string) {
	for _, path := range w.outputs() {
		if path != "" {
			paths = append(paths, path)
		}
	}
	for _, stream := range []string{"1", "2"} {
		if path, err := os.Readlink("/proc/self/fd/" + stream); err == nil && input.IsFile(path) {
			paths = append(paths, path)
		}
	}
	return paths
}

// refuseInputs returns an error if an output would overwrite an input.
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
		if output != "" && input.IsFile(output) && durable.SameFile(in, output) {
			return usageError("--%s %s: that is an input file, which would be lost; name another one", flag, output)
		}
	}
	return nil
}

// checkFolder makes sure that there is a folder for a file that is written at the end, and that the
// file can be made there: it replaces an earlier one.
func checkFolder(flag, path string) error {
	if path == "" {
		return nil
	}
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return usageError("--%s %s: expected a file, got a folder", flag, path)
	case err == nil && !info.Mode().IsRegular():
		return nil // a device or a pipe is written as it is
	}
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target // which is replaced, and not the link
	}
	dir := filepath.Dir(path)
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return usageError("--%s %s: there is no folder %s; make it first", flag, path, dir)
	}
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		return usageError("--%s %s: no file can be made in the folder %s: %w; name a file elsewhere", flag, path, dir, err)
	}
	return nil
}

// checkEvents makes sure, once there is a store, that the file of events can be appended to, before
// there is a run.
func (w *watchFlags) checkEvents() error {
	if w.events == "" {
		return nil
	}
	if !input.IsFile(w.events) {
		return checkFolder("events", w.events)
	}
	if err := unix.Access(w.events, unix.W_OK); err != nil {
		return usageError("--events %s: cannot be written: %w", w.events, err)
	}
	return nil
}
