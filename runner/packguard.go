package runner

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/rollout"
	"github.com/evalrun/evalrun/internal/snapshot"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/rules"
	"github.com/evalrun/evalrun/internal/workspace"
)

// packGuard keeps secrets out of a pack: the values of variables that it knows, and the homes of agents, in which they
// leave their logins. Of runs that are final it leaves homes out and redacts payloads; what a run needs that
// goes on is not changed, but refused. A nil guard lets everything pass.
type packGuard struct {
	redactors []*redact.Redactor
	final     bool
}

func (s *Store) newPackGuard(ctx context.Context, runs []Run, o PackOptions) (*packGuard, error) {
	g := &packGuard{final: true}
	var unknown []string
	for _, run := range runs {
		plan, err := readPlan(ctx, s.st, run.ID)
		if err != nil {
			return nil, err
		}
		g.redactors, g.final = append(g.redactors, o.Variables.Redactor(plan)), g.final && run.Final
		for _, name := range plan.Variables() {
			if value, _ := o.Variables.resolve(name); value == "" && !slices.Contains(unknown, name) {
				unknown = append(unknown, name)
			}
		}
	}
	if len(unknown) > 0 {
		o.Notice(fmt.Sprintf("not set here, so what is packed may have their values: %s; set them, or give --with-payloads and a key",
			strings.Join(unknown, ", ")))
	}
	return g, nil
}

// refused is the error of something that has a secret.
func refused(what string) error {
	return inputError("%s would be in the file for everybody who has it; give --with-payloads and a key (--recipient or --passphrase-file)",
		what)
}

// row looks at a row of the store.
func (g *packGuard) row(r *rules.Row) (err error) {
	if g == nil {
		return nil
	}
	r.Change(func(column string, value []byte) []byte {
		clean := value
		for _, red := range g.redactors {
			if column == "payload" {
				clean = red.JSON(clean)
			} else {
				clean = red.Bytes(clean)
			}
		}
		if !bytes.Equal(clean, value) && (!g.final || column != "payload") {
			err = errors.Join(err, refused(fmt.Sprintf("a secret that the store has (%s.%s)", r.Table, column)))
		}
		return clean
	})
	return err
}

// without are the folders that are not packed of a rollout, beside others.
func (g *packGuard) without(others []string) []string {
	if g == nil || !g.final {
		return others
	}
	return append([]string{workspace.FolderHome}, others...)
}

// isHome reports whether a path below the folder of a rollout is that of something in its home, or in a copy of it.
func isHome(path string) bool {
	parts := strings.Split(path, "/")
	return len(parts) > 1 && parts[0] == workspace.FolderHome ||
		len(parts) > 2 && rollout.IsCopy(parts[0]) && parts[1] == workspace.FolderHome
}

// file returns what looks at a file of the pack.
func (g *packGuard) file(name string) io.WriteCloser {
	c := &packCheck{name: name, before: sha256.New()}
	for _, red := range g.redactors {
		after := sha256.New()
		c.after, c.cleaners = append(c.after, after), append(c.cleaners, red.Writer(after))
	}
	return c
}

// packCheck compares a file with what redaction makes of it.
type packCheck struct {
	name     string
	before   hash.Hash
	after    []hash.Hash
	cleaners []io.WriteCloser
}

// Write implements io.Writer.
func (c *packCheck) Write(p []byte) (int, error) {
	_, _ = c.before.Write(p) // a hash takes everything
	for _, cleaner := range c.cleaners {
		if _, err := cleaner.Write(p); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// Close says what was found.
func (c *packCheck) Close() error {
	if parts := strings.SplitN(c.name, "/", 3); len(parts) == 3 && parts[0] != runsFolder && isHome(parts[2]) {
		return refused(fmt.Sprintf("the home of the agent of rollout %s (%s), which may have its logins,", parts[1], parts[2]))
	}
	for i, cleaner := range c.cleaners {
		if err := cleaner.Close(); err != nil {
			return err
		}
		if !bytes.Equal(c.after[i].Sum(nil), c.before.Sum(nil)) {
			return refused("a secret that is in " + c.name)
		}
	}
	return nil
}

// look looks at a file that is in a snapshot of a folder.
func (g *packGuard) look(folder string) func(path string, content io.Reader) error {
	return func(path string, content io.Reader) error {
		check := g.file(folder + "/" + path)
		_, err := io.Copy(check, content)
		return errors.Join(err, check.Close())
	}
}

// snapshots looks into the snapshots in the folders of a rollout.
func (g *packGuard) snapshots(rolloutID string, folders ...string) error {
	if g == nil {
		return nil
	}
	for _, folder := range folders {
		for _, name := range []string{rollout.FolderSnapshots, rollout.FolderRecord} {
			if err := snapshot.EachFile(filepath.Join(folder, name), g.look(workFolder+"/"+rolloutID)); err != nil {
				return err
			}
		}
	}
	return nil
}

// shared looks into the snapshots that a store has of a run: of its eval set's folder, and of its rollouts.
func (g *packGuard) shared(ctx context.Context, in *rules.Store, runID string) error {
	plan, err := readPlan(ctx, in, runID)
	if err == nil && plan.Folder != nil {
		err = plan.Folder.Files.EachFile(ctx, in, g.look(runsFolder+"/"+runID+"/set"))
	}
	if err != nil {
		return err
	}
	rollouts, err := in.RolloutIDs(ctx, runID)
	for _, id := range rollouts {
		if err == nil {
			err = g.sharedOf(ctx, in, id)
		}
	}
	return err
}

func (g *packGuard) sharedOf(ctx context.Context, in *rules.Store, rolloutID string) error {
	kept, err := in.Kept(ctx, rolloutID)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	all, sharedErr := rollout.Shared(kept)
	if err := errors.Join(err, sharedErr); err != nil {
		return err
	}
	for _, as := range all {
		if err := as.EachFile(ctx, in, g.look(workFolder+"/"+rolloutID)); err != nil {
			return err
		}
	}
	return nil
}
