package service

import (
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/runner"
)

// loader reads the eval sets of requests. Its methods may be called from several goroutines.
type loader struct {
	cfg Config
	o   Options
	// storeDir is the folder of the store.
	storeDir string
	// large is held while an upload larger than largeUpload is read.
	large sync.Mutex
}

// load reads the eval set of a request.
func (l *loader) load(q StartRequest) (*runner.EvalSet, error) {
	o := runner.LoadOptions{Agents: q.Agents, EvalIDs: q.EvalIDs, Epochs: q.Epochs, Retries: q.MaxRetries,
		RetryOn: q.RetryOn, Timeout: q.MaxDuration,
		Inputs: q.Inputs, Sandbox: l.o.Sandbox, Variables: l.o.Variables, Catalog: &l.cfg.Catalog}
	var paths []string
	if q.Upload != nil {
		if len(q.Upload) > largeUpload {
			l.large.Lock()
			defer l.large.Unlock()
		}
		upload, err := l.upload(q.Upload)
		if err != nil {
			return nil, err
		}
		o.Upload = upload
	} else {
		path, err := l.cfg.EvalSets.Find(q.EvalSet)
		if err != nil {
			return nil, err
		}
		paths = []string{path}
	}
	set, err := runner.Load(paths, o)
	return set, l.withoutFolders(err)
}

// withoutFolders removes the folders of this machine, which are no business of a caller's, from an
// error about a request.
func (l *loader) withoutFolders(err error) error {
	var wrong *runner.InputError
	if !errors.As(err, &wrong) {
		return err
	}
	clean := func(text string) string {
		for _, dir := range []string{l.cfg.EvalSets.Dir, l.cfg.Catalog.Dir, l.storeDir} {
			if dir != "" {
				text = strings.ReplaceAll(text, strings.TrimSuffix(dir, "/")+"/", "")
			}
		}
		return text
	}
	var places input.Problems
	if !errors.As(err, &places) {
		return &runner.InputError{Err: errors.New(clean(wrong.Error()))}
	}
	places = slices.Clone(places)
	for i := range places {
		places[i].File, places[i].Message = clean(places[i].File), clean(places[i].Message)
	}
	return &runner.InputError{Err: places}
}
