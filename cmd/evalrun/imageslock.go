package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/internal/durable"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/image"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/tasks"
)

const (
	lockFileName    = "images.lock.json"
	lockFileVersion = "1.0"
)

// lockFile says what the images of tasks have in them.
type lockFile struct {
	SchemaVersion string       `json:"schemaVersion"`
	Platform      string       `json:"platform"`
	Tasks         []lockedTask `json:"tasks"`
}

type lockedTask struct {
	// Task is the path of the task's folder from that of the file, slash-separated.
	Task   string           `json:"task"`
	Images []image.Recorded `json:"images"`
}

// differentImage is an image that is not as the file says, as --json prints it.
type differentImage struct {
	Task        string   `json:"task"`
	Of          string   `json:"of,omitempty"`
	Differences []string `json:"differences"`
}

func (f *imagesFlags) lock(g *globals) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "lock TASKDIR...",
		Short: "Write down what the images of tasks have in them",
		Long: `Build or pull the images of task directories, datasets or globs of these, as images build does, and
write a file that says what they have in them: the digests of the build contexts, the bases and the
images, and the packages of apt, apk, pip and npm. Nothing in the images is run. With the file,
images check tells whether a later build has the same. The exit code is 3 if an image cannot be
built or pulled; then no file is written.`,
		Args: between(1, math.MaxInt),
		RunE: func(cmd *cobra.Command, args []string) error {
			dirs, err := tasks.Find(args)
			if err != nil {
				return usageError("%w", err)
			}
			lock := lockFile{lockFileVersion, "linux/" + runtime.GOARCH, nil}
			if lock.Tasks, err = f.record(cmd, g, dirs, output); err != nil {
				return err
			}
			write := func(w io.Writer) error {
				enc := json.NewEncoder(w)
				enc.SetIndent("", "  ")
				enc.SetEscapeHTML(false)
				return enc.Encode(lock)
			}
			if err := durable.WriteFile(output, 0o644, write); err != nil {
				return usageError("%w", err)
			}
			if g.json {
				return printJSON(cmd, lock)
			}
			printf(stdout(cmd), "%s has the images of %s\n", redact.Line(output), counted(len(lock.Tasks), "task"))
			return nil
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", lockFileName, "write `FILE`")
	return cmd
}

func (f *imagesFlags) check(g *globals) *cobra.Command {
	var file string
	var exact bool
	cmd := &cobra.Command{
		Use:   "check [TASKDIR...]",
		Short: "Compare the images of tasks with what was written down",
		Long: `Build or pull the images of tasks, and compare them with a file of images lock: all tasks of the
file, or those that are named. An image differs if its build context or its packages do. Two builds
never have the same digest, so digests count only with --exact. The exit code is 1 if an image
differs, and 3 if one cannot be built or pulled.`,
		Args: between(0, math.MaxInt),
		RunE: func(cmd *cobra.Command, args []string) error {
			lock, err := readLockFile(file)
			if err != nil {
				return usageError("%s: %w", file, err)
			}
			var dirs []string
			for _, t := range lock.Tasks {
				dirs = append(dirs, filepath.Join(filepath.Dir(file), filepath.FromSlash(t.Task)))
			}
			if len(args) > 0 {
				if dirs, err = tasks.Find(args); err != nil {
					return usageError("%w", err)
				}
			}
			now, err := f.record(cmd, g, dirs, file)
			if err != nil {
				return err
			}
			different := lock.compare(now, exact)
			if g.json {
				err = printJSON(cmd, different)
			} else {
				for _, d := range different {
					for _, text := range d.Differences {
						printf(stdout(cmd), "%s\n", redact.Line(strings.TrimSpace(d.Task+" "+d.Of)+": "+text))
					}
				}
			}
			if err == nil && len(different) > 0 {
				err = &exitError{exitThreshold, fmt.Errorf("images that are not as %s says: %d", file, len(different))}
			} else if err == nil && !g.json {
				printf(stdout(cmd), "the images of %s are as %s says\n", counted(len(now), "task"), redact.Line(file))
			}
			return err
		},
	}
	cmd.Flags().StringVar(&file, "lock", lockFileName, "compare with `FILE`")
	cmd.Flags().BoolVar(&exact, "exact", false, "also demand that the digests of images and their bases are the same")
	return cmd
}

func readLockFile(file string) (lock lockFile, err error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return lock, errors.New("there is no such file; evalrun images lock TASKDIR... writes it")
	}
	if err == nil {
		err = json.Unmarshal(data, &lock)
	}
	if err == nil && lock.SchemaVersion != lockFileVersion {
		err = fmt.Errorf("expected a file of evalrun images lock, with schemaVersion %q, got %q", lockFileVersion, lock.SchemaVersion)
	}
	return lock, err
}

// compare lists the images that are not as the file says.
func (l *lockFile) compare(now []lockedTask, exact bool) []differentImage {
	different := []differentImage{}
	add := func(task, of string, differences ...string) {
		if len(differences) > 0 {
			different = append(different, differentImage{task, of, differences})
		}
	}
	for _, t := range now {
		at := slices.IndexFunc(l.Tasks, func(was lockedTask) bool { return was.Task == t.Task })
		if at < 0 {
			add(t.Task, "", "the file does not have the task")
			continue
		}
		locked := l.Tasks[at].Images
		for i := range t.Images {
			is := &t.Images[i]
			k := slices.IndexFunc(locked, func(was image.Recorded) bool { return was.Of == is.Of })
			if k < 0 {
				add(t.Task, is.Of, "the file does not have the image")
			} else {
				add(t.Task, is.Of, locked[k].Differences(is, exact)...)
			}
		}
		for _, was := range locked {
			if !slices.ContainsFunc(t.Images, func(is image.Recorded) bool { return was.Of == is.Of }) {
				add(t.Task, was.Of, "the task has no such image any more")
			}
		}
	}
	return different
}

// record gets the images of tasks and describes them. file is the one from which the paths of the
// tasks lead.
func (f *imagesFlags) record(cmd *cobra.Command, g *globals, dirs []string, file string) ([]lockedTask, error) {
	all, err := loadTasks(dirs)
	if err != nil {
		return nil, err
	}
	im, err := f.open()
	if err != nil {
		return nil, err
	}
	from, err := filepath.Abs(filepath.Dir(file))
	if err != nil {
		return nil, internal(err)
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), endSignals()...)
	defer stop()
	out, made, failed := []lockedTask{}, 0, 0
	for _, task := range all {
		dir, err := filepath.Abs(task.Dir)
		if err == nil {
			dir, err = filepath.Rel(from, dir)
		}
		if err != nil {
			return nil, internal(err)
		}
		one := lockedTask{filepath.ToSlash(dir), []image.Recorded{}}
		for _, i := range task.Images() {
			r, err := recordImage(ctx, im, &i, progressOf(cmd, g))
			made++
			var bad *fault.Fault
			switch {
			case errors.Is(err, context.Canceled):
				return nil, &exitError{exitInterrupted, errors.New("interrupted")}
			case errors.As(err, &bad):
				failed++
				printf(cmd.ErrOrStderr(), "%s\n", redact.Terminal(bad.Message))
			case err != nil:
				return nil, &exitError{exitFaulted, fmt.Errorf("%s: %w", task.Dir, err)}
			}
			one.Images = append(one.Images, r)
		}
		out = append(out, one)
	}
	if failed > 0 {
		return nil, &exitError{exitFaulted, fmt.Errorf("%d of %s could not be made", failed, counted(made, "image"))}
	}
	return out, nil
}

func recordImage(ctx context.Context, im *image.Images, of *tasks.Image, progress func(string)) (r image.Recorded, err error) {
	s := image.Of(of)
	i, err := im.Get(ctx, s, progress)
	if err != nil {
		return r, err
	}
	defer i.Release()
	return im.Record(ctx, s, of.Key, i)
}
