package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os/signal"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/internal/container"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/image"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/tasks"
)

// imagesFlags are the flags of all commands about images.
type imagesFlags struct {
	dir     string
	builder string
}

func imagesCommand(g *globals) *cobra.Command {
	var f imagesFlags
	cmd := &cobra.Command{
		Use:   "images",
		Short: "List, build, pull, lock and remove the images in which tasks run",
		Long: `List, build, pull, lock and remove the images in which tasks run. All stores of a user share
them: they are in $EVALRUN_IMAGES, else in evalrun/images of the user's cache folder. A run builds
and pulls what it needs by itself; do it beforehand where a run has no network.`,
		Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	flags := cmd.PersistentFlags()
	flags.StringVar(&f.dir, "images", "", "keep images in `DIR`")
	flags.StringVar(&f.builder, "builder", "",
		"build and pull with `PROGRAM`: podman, buildah or docker; else $EVALRUN_BUILDER, or the first that this machine has")
	cmd.AddCommand(f.list(g), f.build(g), f.pull(g), f.lock(g), f.check(g), f.gc(g))
	return cmd
}

func (f *imagesFlags) open() (*image.Images, error) {
	dir := f.dir
	if dir == "" {
		var err error
		if dir, err = image.Dir(); err != nil {
			return nil, usageError("%w", err)
		}
	}
	im, err := image.Open(dir, image.Options{Builder: f.builder})
	if err != nil {
		return nil, usageError("%w", err)
	}
	return im, nil
}

func (f *imagesFlags) list(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the images, and the disk space that they take",
		Long: `List the images, and the disk space that they take. OWN is the space that removing an image would
free; it shares the rest of SIZE with others. An image is in use while a process works with it, and
kept while an unfinished rollout or run needs it.`,
		Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			im, err := f.open()
			if err != nil {
				return err
			}
			entries, err := im.List()
			if err != nil {
				return internal(err)
			}
			services, err := im.Services(cmd.Context())
			if err != nil {
				printf(cmd.ErrOrStderr(), "the images of services are not listed: %s\n", redact.Terminal(err.Error()))
			}
			entries = append(entries, services...)
			if g.json {
				return printJSON(cmd, entries)
			}
			return printImages(cmd, entries, im.CacheBytes())
		},
	}
}

func printImages(cmd *cobra.Command, entries []image.Entry, cache int64) error {
	t := tabwriter.NewWriter(stdout(cmd), 0, 0, 2, ' ', 0)
	printf(t, "IMAGE\tSIZE\tOWN\tLAST USED\tUSE\tOF\n")
	for _, e := range entries {
		use := "-"
		switch {
		case e.InUse:
			use = "in use"
		case len(e.Kept) > 0:
			use = "kept"
		}
		printf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", shortDigest(e.Digest), megabytes(e.Bytes), megabytes(e.OwnBytes),
			e.Used.Local().Format(time.DateTime), use, redact.Line(strings.Join(e.Of, ", ")))
	}
	if err := t.Flush(); err != nil {
		return internal(err)
	}
	if cache > 0 {
		printf(stdout(cmd), "The cache of the builders takes %s more.\n", megabytes(cache))
	}
	return nil
}

func megabytes(bytes int64) string { return fmt.Sprintf("%.1f MB", float64(bytes)/1e6) }

func shortDigest(digest string) string {
	_, hex, _ := strings.Cut(digest, ":")
	return hex[:min(12, len(hex))]
}

// builtJSON is one image of build and pull as --json prints it.
type builtJSON struct {
	Of     string `json:"of"`
	Digest string `json:"digest,omitempty"`
	// MadeMs is how long building or pulling took; 0 if the image was there.
	MadeMs int64        `json:"madeMs"`
	Error  *fault.Fault `json:"error"`
}

func (f *imagesFlags) build(g *globals) *cobra.Command {
	var rebuild bool
	cmd := &cobra.Command{
		Use:   "build TASKDIR...",
		Short: "Build or pull the images of tasks and their tests",
		Long: `Build or pull the images of task directories, datasets or globs of these: those of the environments,
and those of verifiers that have their own. An image that is there already is not built again,
unless its base has changed or --rebuild is given. The exit code is 3 if an image cannot be built or
pulled.`,
		Args: between(1, math.MaxInt),
		RunE: func(cmd *cobra.Command, args []string) error {
			dirs, err := tasks.Find(args)
			if err != nil {
				return usageError("%w", err)
			}
			all, err := loadTasks(dirs)
			if err != nil {
				return err
			}
			var specs []image.Spec
			for _, task := range all {
				for _, i := range task.Images() {
					s := image.Of(&i)
					s.Rebuild = rebuild && s.Context != ""
					specs = append(specs, s)
				}
			}
			return f.make(cmd, g, specs)
		},
	}
	cmd.Flags().BoolVar(&rebuild, "rebuild", false,
		"build Dockerfiles again, even if the image is there, or the task names one")
	return cmd
}

func (f *imagesFlags) pull(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "pull NAME...",
		Short: "Pull images by their names",
		Long: `Pull images by their names, such as ubuntu:24.04: from this machine's builder if it has them, else
from the registry. The exit code is 3 if there is no image of that name.`,
		Args: between(1, math.MaxInt),
		RunE: func(cmd *cobra.Command, args []string) error {
			var specs []image.Spec
			for _, name := range args {
				specs = append(specs, image.Spec{Reference: name})
			}
			return f.make(cmd, g, specs)
		},
	}
}

// make makes images one after the other and prints the outcome of each.
func (f *imagesFlags) make(cmd *cobra.Command, g *globals, specs []image.Spec) error {
	im, err := f.open()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), endSignals()...)
	defer stop()
	out, failed := []builtJSON{}, 0
	for _, s := range specs {
		one, err := f.makeOne(ctx, cmd, g, im, s)
		if errors.Is(err, context.Canceled) {
			return &exitError{exitInterrupted, errors.New("interrupted")}
		}
		if err != nil {
			return internal(err)
		}
		if one.Error != nil {
			failed++
		}
		out = append(out, one)
		if !g.json {
			printBuilt(cmd, one)
		}
	}
	if g.json {
		if err := printJSON(cmd, out); err != nil {
			return err
		}
	}
	if failed > 0 {
		return &exitError{exitFaulted, fmt.Errorf("%d of %s could not be made", failed, counted(len(specs), "image"))}
	}
	return nil
}

// makeOne makes one image. It returns an error only for a failure of evalrun itself.
func (f *imagesFlags) makeOne(ctx context.Context, cmd *cobra.Command, g *globals, im *image.Images,
	s image.Spec) (builtJSON, error) {
	one := builtJSON{Of: s.String()}
	i, err := im.Get(ctx, s, progressOf(cmd, g))
	if err != nil {
		if errors.As(err, &one.Error) {
			err = nil
		}
		return one, err
	}
	defer i.Release()
	one.Digest, one.MadeMs = i.Digest, i.Made.Milliseconds()
	return one, nil
}

// progressOf prints what takes time.
func progressOf(cmd *cobra.Command, g *globals) func(string) {
	return func(line string) {
		if !g.quiet {
			printf(cmd.ErrOrStderr(), "%s\n", redact.Line(line))
		}
	}
}

// loadTasks reads task directories.
func loadTasks(dirs []string) (all []*tasks.Task, err error) {
	for _, dir := range dirs {
		task, problems := tasks.Load(dir)
		if err := problems.Err(false); err != nil {
			return nil, usageError("%w", err)
		}
		all = append(all, task)
	}
	return all, nil
}

func printBuilt(cmd *cobra.Command, one builtJSON) {
	switch {
	case one.Error != nil:
		printf(cmd.ErrOrStderr(), "%s\n", redact.Terminal(one.Error.Message))
	case one.MadeMs == 0:
		printf(stdout(cmd), "%s: %s, was there\n", redact.Line(one.Of), shortDigest(one.Digest))
	default:
		printf(stdout(cmd), "%s: %s, made in %s\n", redact.Line(one.Of), shortDigest(one.Digest),
			(time.Duration(one.MadeMs) * time.Millisecond).Round(100*time.Millisecond))
	}
}

func (f *imagesFlags) gc(g *globals) *cobra.Command {
	var older age
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "Remove unused images, and what killed builds have left",
		Long: `Remove the images that no process uses and no unfinished rollout needs, with the layers that no
other image has, and everything that is incomplete. With the last image the cache of the builders is
removed. --json prints an array of what was removed. From a Docker daemon, if one answers, the
volumes with programs of agents are removed that this machine has made and that no container has;
images stay there.`,
		Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			im, err := f.open()
			if err != nil {
				return err
			}
			removed, bytes, err := im.Collect(cmd.Context(), time.Now().Add(-time.Duration(older)), dryRun, func() {
				printf(cmd.ErrOrStderr(), "waiting for a build to end\n")
			})
			if err != nil {
				return internal(err)
			}
			services, more, failed := collectServices(cmd.Context(), im, time.Now().Add(-time.Duration(older)), dryRun)
			if failed != nil { // removed images are listed before the failure
				failed = internal(fmt.Errorf("the images of services: %w", failed))
			}
			removed, bytes = append(removed, services...), bytes+more
			volumes := 0
			if daemon, err := container.OpenDaemon(cmd.Context()); err == nil { // most machines have none
				if volumes, err = daemon.CollectPrograms(cmd.Context(), time.Duration(older), dryRun); err != nil {
					failed = errors.Join(failed, internal(fmt.Errorf("the volumes of the Docker daemon: %w", err)))
				}
			}
			if g.json {
				return errors.Join(printJSON(cmd, removed), failed)
			}
			verb := "removed"
			if dryRun {
				verb = "would remove"
			}
			printf(stdout(cmd), "%s %s, %s\n", verb, counted(len(removed), "image"), megabytes(bytes))
			if volumes > 0 {
				printf(stdout(cmd), "%s %s with programs from the Docker daemon\n", verb, counted(volumes, "volume"))
			}
			return failed
		},
	}
	cmd.Flags().Var(&older, "older", "only remove what was not used for `AGE` (30d, 2w, 12h)")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only say what would be removed")
	return cmd
}

// collectServices removes the images of services while nobody builds one.
func collectServices(ctx context.Context, im *image.Images, unusedSince time.Time,
	dryRun bool) ([]image.Entry, int64, error) {
	removed, bytes, err := im.CollectServices(ctx, unusedSince, true)
	if err != nil || dryRun || len(removed) == 0 {
		return removed, bytes, err
	}
	unlock, err := container.LockBuilds()
	if err != nil {
		return nil, 0, err
	}
	defer unlock()
	return im.CollectServices(ctx, unusedSince, false)
}
