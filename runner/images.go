package runner

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/image"
	"github.com/evalrun/evalrun/tasks"
)

func openImages() (*image.Images, error) {
	dir, err := image.Dir()
	if err != nil {
		return nil, &InputError{Err: err}
	}
	all, err := image.Open(dir, image.Options{})
	if err != nil {
		return nil, &InputError{Err: err}
	}
	return all, nil
}

// RebuildImages rebuilds the images of the set's Dockerfiles, even if they exist. It calls progress
// about lengthy steps. A failure is no error here: the rollouts that need the image try again, and
// then have the fault.
func (e *EvalSet) RebuildImages(ctx context.Context, progress func(string)) error {
	all, err := openImages()
	if err != nil {
		return err
	}
	for _, one := range e.req.Set.Evaluations {
		if one.Task == nil || !one.Task.Image {
			continue
		}
		task, problems := tasks.Load(filepath.Join(e.req.BaseDir, filepath.FromSlash(one.Task.Dir)))
		if problems.Err(false) != nil {
			continue // its rollout reports the error
		}
		for _, i := range task.Images() {
			if i.Context == "" {
				continue
			}
			s := image.Of(&i)
			s.Rebuild = true
			made, err := all.Get(ctx, s, progress)
			if f := (*fault.Fault)(nil); errors.As(err, &f) {
				progress(f.Message)
				continue
			}
			if err != nil {
				return err
			}
			made.Release()
		}
	}
	return nil
}

// imageGaps returns what is missing here for the images of a task.
func imageGaps(t *tasks.Task) (gaps []tasks.Gap) {
	for _, i := range t.Images() {
		all, err := openImages()
		if err == nil {
			err = all.Missing(image.Of(&i))
		}
		if f := (*fault.Fault)(nil); errors.As(err, &f) {
			err = errors.New(f.Message)
		}
		if err != nil {
			gaps = append(gaps, tasks.Gap{Key: i.Key, Reason: err.Error()})
		}
	}
	return gaps
}
