package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/report"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/schemas"
)

// globals are the flags that every command has.
type globals struct {
	store    string
	logLevel string
	json     bool
	quiet    bool
}

func (g *globals) register(root *cobra.Command) {
	f := root.PersistentFlags()
	f.StringVar(&g.store, "store", "", "the store's folder `DIR` (default: $EVALRUN_STORE, else .evalrun)")
	f.StringVar(&g.logLevel, "log-level", "warn", "`LEVEL`: debug, info, warn or error")
	f.BoolVar(&g.json, "json", false, "print JSON on stdout")
	f.BoolVarP(&g.quiet, "quiet", "q", false, "print no progress and no table")
}

func (g *globals) logger(w io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(g.logLevel)); err != nil {
		return nil, usageError("--log-level: expected debug, info, warn or error, got %q", g.logLevel)
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level})), nil
}

// storeDir is the store that the flags and the environment name.
func (g *globals) storeDir() (string, error) {
	dir := g.store
	if dir == "" {
		dir = os.Getenv("EVALRUN_STORE")
	}
	if dir == "" {
		dir = ".evalrun"
	}
	if scheme, _, ok := strings.Cut(dir, "://"); ok {
		return "", usageError("--store %s: stores of kind %q are not supported by this version; give a folder", dir, scheme)
	}
	return dir, nil
}

// open opens the store. Only run makes one; for every other command it must be there.
func (g *globals) open(mustExist bool) (*store.SQLite, error) {
	dir, err := g.storeDir()
	if err != nil {
		return nil, err
	}
	return openStore(dir, mustExist)
}

func openStore(dir string, mustExist bool) (*store.SQLite, error) {
	lease, err := leaseForTests()
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return nil, usageError("the store %s is not a folder; give one with --store", dir)
	}
	s, err := store.Open(dir, store.Options{MustExist: mustExist, Lease: lease, Warn: func(what string) { printf(os.Stderr, "evalrun: %s\n", redact.Line(what)) }})
	if errors.Is(err, fs.ErrNotExist) && mustExist {
		return nil, usageError("there is no store in %s; give its folder with --store, or start a run there first", dir)
	}
	return s, internal(err)
}

// withStore runs f with the store open.
func (g *globals) withStore(f func(*store.SQLite) error) (err error) {
	s, err := g.open(true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, internal(s.Close())) }()
	return f(s)
}

// findRun opens the store of a run that is named by its id, a unique beginning of it, or a results document, whose store is found as
// DESIGN says: --store, EVALRUN_STORE, the document's own storePath, or the nearest .evalrun upward of it.
func (g *globals) findRun(ctx context.Context, name string) (*store.SQLite, string, error) {
	if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() {
		return g.findDocument(ctx, name)
	}
	if strings.ContainsAny(name, `/\`) || strings.HasSuffix(name, ".json") {
		return nil, "", usageError("%s: there is no such file; give a results document or the id of a run (evalrun list shows them)", name)
	}
	s, err := g.open(true)
	if err != nil {
		return nil, "", err
	}
	id, err := runByPrefix(ctx, s, name)
	if err != nil {
		return nil, "", errors.Join(err, s.Close())
	}
	return s, id, nil
}

func runByPrefix(ctx context.Context, s store.Store, prefix string) (string, error) {
	runs, err := s.Runs(ctx)
	if err != nil {
		return "", internal(err)
	}
	var found []string
	for _, r := range runs {
		if r.ID == prefix {
			return r.ID, nil
		}
		if strings.HasPrefix(r.ID, prefix) {
			found = append(found, r.ID)
		}
	}
	switch len(found) {
	case 0:
		return "", usageError("there is no run %q in the store %s; evalrun list shows the runs", prefix, s.Dir())
	case 1:
		return found[0], nil
	}
	return "", usageError("%d runs begin with %q; give more of the id", len(found), prefix)
}

func (g *globals) findDocument(ctx context.Context, path string) (*store.SQLite, string, error) {
	head, err := report.ReadResults(path)
	if err != nil {
		return nil, "", usageError("%w", err)
	}
	dir, err := g.documentStore(path, head)
	if err != nil {
		return nil, "", err
	}
	s, err := openStore(dir, true)
	if err != nil {
		return nil, "", err
	}
	if s.ID() != head.StoreID {
		err := usageError("%s belongs to the store %s, but the store in %s is %s; give the right one with --store", path, head.StoreID, s.Dir(), s.ID())
		return nil, "", errors.Join(err, s.Close())
	}
	if _, err := s.Run(ctx, head.RunID); err != nil {
		return nil, "", errors.Join(usageError("%s: its run %s is not in the store %s", path, head.RunID, s.Dir()), s.Close())
	}
	return s, head.RunID, nil
}

func (g *globals) documentStore(path string, head schemas.Head) (string, error) {
	if g.store != "" || os.Getenv("EVALRUN_STORE") != "" {
		return g.storeDir()
	}
	folder, err := filepath.Abs(filepath.Dir(path))
	if err != nil {
		return "", internal(err)
	}
	if dir := filepath.Join(folder, filepath.FromSlash(head.StorePath)); isStore(dir) {
		return dir, nil
	}
	for up := folder; ; up = filepath.Dir(up) {
		for _, dir := range []string{up, filepath.Join(up, ".evalrun")} {
			if isStore(dir) {
				return dir, nil
			}
		}
		if up == filepath.Dir(up) {
			return "", usageError("%s: its store is not at %q beside it, and there is no .evalrun upward of it; give the store with --store", path, head.StorePath)
		}
	}
}

func isStore(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "store.db"))
	return err == nil
}

// maxSmallFile is how large a file with variables, or with a token, may be.
const maxSmallFile = 1 << 20

// unreadable says of an error of opening or reading a file which file it is, as it was given.
func unreadable(path string, err error) error {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return fmt.Errorf("%s: cannot be read: %w", path, pathErr.Err)
	}
	return err
}

// stdout is where what was asked for goes.
func stdout(cmd *cobra.Command) io.Writer { return cmd.OutOrStdout() }

func printf(w io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(w, format, args...) // a closed terminal is nothing to report to a terminal
}
