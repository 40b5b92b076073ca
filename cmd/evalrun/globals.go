package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/report"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/backend"
	"github.com/evalrun/evalrun/runner"
)

// globals are the flags that every command has.
type globals struct {
	store    string
	logLevel string
	json     bool
	quiet    bool
	// tags are those of this worker, if its flag has said so.
	tags []string
}

func (g *globals) register(root *cobra.Command) {
	f := root.PersistentFlags()
	f.StringVar(&g.store, "store", "", "the `STORE`: its folder, or postgres://… (default: $EVALRUN_STORE, else .evalrun, upward)")
	f.StringVar(&g.logLevel, "log-level", "warn", "`LEVEL`: debug, info, warn or error")
	f.BoolVar(&g.json, "json", false, "print JSON on stdout")
	f.BoolVarP(&g.quiet, "quiet", "q", false, "print no progress and no table")
}

// check reports what is wrong with the flags. It refuses an empty --store, as from a variable that
// is not set: it would open another store than the intended one.
func (g *globals) check(cmd *cobra.Command) error {
	if g.store == "" && cmd.Flags().Changed("store") {
		return usageError("--store: expected a folder or postgres://…, got nothing; leave the flag out for $EVALRUN_STORE, or else .evalrun")
	}
	_, err := g.level()
	return err
}

func (g *globals) level() (level slog.Level, err error) {
	if err := level.UnmarshalText([]byte(g.logLevel)); err != nil {
		return level, usageError("--log-level: expected debug, info, warn or error, got %q", g.logLevel)
	}
	return level, nil
}

// storeDir is the store that the flags or the environment name, or empty if neither does.
func (g *globals) storeDir() string { return cmp.Or(g.store, os.Getenv("EVALRUN_STORE")) }

// openOptions are the options with which every command opens a store.
func (g *globals) openOptions(cmd *cobra.Command) (o runner.OpenOptions, err error) {
	o = runner.OpenOptions{Version: buildInfo().line(), Log: cmd.ErrOrStderr(), MustExist: true,
		Warn: func(text string) { printf(os.Stderr, "evalrun: %s\n", text) }}
	if o.Lease, err = leaseForTests(); err != nil {
		return o, err
	}
	if o.KeepFiles, err = keepFiles(os.Getenv("EVALRUN_PORTABLE")); err != nil {
		return o, err
	}
	if o.Tags = g.tags; o.Tags == nil {
		if o.Tags, err = workerTags("EVALRUN_TAGS", os.Getenv("EVALRUN_TAGS")); err != nil {
			return o, err
		}
	}
	o.Blobs = os.Getenv("EVALRUN_BLOBS")
	o.LogLevel, err = g.level()
	return o, err
}

// workerTags reads tags between commas; what says where they are from.
func workerTags(what, text string) (tags []string, err error) {
	if text == "" {
		return nil, nil
	}
	for _, tag := range strings.Split(text, ",") {
		if tag = strings.TrimSpace(tag); !input.IsLabel(tag) {
			return nil, usageError("%s: expected tags between commas, each of up to 63 letters, digits, dots, hyphens and underscores, got %q", what, text)
		}
		tags = append(tags, tag)
	}
	return tags, nil
}

// keepFiles reads how much of the files of a suspended rollout the store takes; nil if nothing is said.
func keepFiles(text string) (*int64, error) {
	switch text {
	case "":
		return nil, nil
	case "0":
		return new(int64), nil
	case "1":
		return new(int64(store.DefaultKeepFiles)), nil
	}
	number, unit := strings.TrimRight(text, "MGB"), map[string]int64{"MB": 1e6, "GB": 1e9}
	n, err := strconv.ParseInt(number, 10, 32)
	if of := unit[text[len(number):]]; err == nil && n > 0 && of > 0 {
		return new(n * of), nil
	}
	return nil, usageError("EVALRUN_PORTABLE: expected 0, 1 or the most that a rollout may have, such as 200MB or 2GB, got %q", text)
}

// withStore runs f with the store open. The store must exist here or in a folder above, unless
// create makes it here.
func (g *globals) withStore(cmd *cobra.Command, create bool, f func(*runner.Store) error) (err error) {
	o, err := g.openOptions(cmd)
	if err != nil {
		return err
	}
	o.MustExist = !create
	dir := cmp.Or(g.storeDir(), runner.DefaultDir)
	if g.storeDir() == "" && !create {
		dir = runner.FindStore()
	}
	s, err := runner.Open(dir, o)
	if err != nil {
		return internal(err)
	}
	defer func() { err = errors.Join(err, internal(s.Close())) }()
	return internal(f(s))
}

// withRun runs f with the store of a run open. The name is one that Store.Find knows, or the run's
// results document.
func (g *globals) withRun(cmd *cobra.Command, name string, f func(*runner.Store, runner.Run) error) (err error) {
	o, err := g.openOptions(cmd)
	if err != nil {
		return err
	}
	s, run, err := runner.OpenRun(cmd.Context(), name, g.storeDir(), o)
	if err != nil {
		return internal(err)
	}
	defer func() { err = errors.Join(err, internal(s.Close())) }()
	return internal(f(s, run))
}

// executable is the name of the program in commands that are shown.
const executable = "evalrun"

// resumeLine is the command that resumes a run.
func resumeLine(s *runner.Store, runID string) string {
	return executable + " resume" + storeFlag(s) + " " + shellQuote(runID)
}

// storeFlag is the flag that a command typed here needs to find the store. It is empty if no flag
// is needed.
func storeFlag(s *runner.Store) string {
	found := os.Getenv("EVALRUN_STORE")
	if found == "" {
		found = runner.FindStore()
	}
	if s.Name() != s.Dir() { // a URL, of which the password is not shown
		if backend.Name(found) == s.Name() {
			return ""
		}
		return " --store " + shellQuote(s.Name())
	}
	if abs, err := filepath.Abs(found); err == nil && abs == s.Dir() {
		return ""
	}
	return " --store " + shellQuote(shortPath(s.Dir()))
}

// shortPath shortens a path as a person would type it from here.
func shortPath(path string) string {
	if dir, err := os.Getwd(); err == nil {
		if rel, err := filepath.Rel(dir, path); err == nil && len(rel) < len(path) {
			return rel
		}
	}
	return path
}

func shellQuote(s string) string { return report.ShellWords([]string{s}) }

// stdout is where a command writes its result.
func stdout(cmd *cobra.Command) io.Writer { return cmd.OutOrStdout() }

func printf(w io.Writer, format string, args ...any) {
	// An error is dropped: a closed terminal cannot be told about.
	_, _ = fmt.Fprintf(w, format, args...)
}

// arrayWriter writes a JSON array of any length, an element a line.
type arrayWriter struct {
	w     io.Writer
	begun bool
}

func (a *arrayWriter) add(v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	before := "[\n"
	if a.begun {
		before = ",\n"
	}
	a.begun = true
	_, err = fmt.Fprintf(a.w, "%s%s", before, data)
	return err
}

func (a *arrayWriter) close() error {
	end := "[]\n"
	if a.begun {
		end = "\n]\n"
	}
	_, err := io.WriteString(a.w, end)
	return err
}

// printJSON writes one JSON document on stdout.
func printJSON(cmd *cobra.Command, v any) error { return writeJSON(stdout(cmd), v) }

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return internal(enc.Encode(v))
}
