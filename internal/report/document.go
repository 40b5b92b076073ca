package report

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/durable"
	"github.com/evalrun/evalrun/internal/files"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/schemas"
)

// WriteResults writes the results document of a view. The document depends on the view alone. At
// one revision it is always the same, byte for byte, except for the times at which the sources of
// open triggers were last asked: a check that brings nothing does not change the revision.
func WriteResults(w io.Writer, v store.View, o Options) error {
	r, err := FromView(v, o)
	if err != nil {
		return err
	}
	return r.WriteResults(w)
}

// WriteResults writes the report as a results document.
func (r *Report) WriteResults(w io.Writer) error {
	return r.writeResults(w, func(d *document) error {
		none := true
		err := r.each(parts{spans: true}, func(one *schemas.Rollout) error {
			d.element(&none, one)
			return d.err
		})
		d.endElements(none)
		return err
	})
}

// writeResults writes the results document around its rollouts.
func (r *Report) writeResults(w io.Writer, rollouts func(*document) error) error {
	d := newDocument(w)
	d.value(r.Head, "")
	d.unclose("}")
	d.text(",\n  \"evaluationSetResults\": [")
	if err := rollouts(d); err != nil {
		return err
	}
	d.text(",\n  \"datasetEvaluatorResults\": ")
	d.value(datasetOrEmpty(r.Dataset), "  ")
	d.text("\n}\n")
	return d.flush()
}

func datasetOrEmpty(d map[string]eval.DatasetResult) map[string]eval.DatasetResult {
	if d == nil {
		return map[string]eval.DatasetResult{}
	}
	return d
}

// SaveResults brings the results document at path up to date. It holds the run's lock, replaces the
// file as a whole, and never overwrites a higher revision of the same run. If path is not a regular
// file, such as /dev/stdout, the document is written to it. look, if not nil, is called with the
// report that is saved.
func SaveResults(ctx context.Context, st store.Reader, runID, path string, red *redact.Redactor,
	look func(*Report) error) (err error) {
	path, isFile, err := durable.Follow(path)
	if err != nil {
		return err
	}
	if !isFile { // the write may wait for a reader, and nobody else should have to wait for that
		return FromStore(ctx, st, runID, red, func(r *Report) error {
			return errors.Join(durable.WriteOutput(path, 0, r.WriteResults), show(r, look))
		})
	}
	dir := string(files.Of(st).Run(runID))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	mode := fs.FileMode(0o644) // the user asked for this document
	if filepath.Dir(path) == dir {
		mode = 0o600
	}
	lock, err := durable.Lock(filepath.Join(dir, "results.lock"), 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	var looked error
	err = snapshot(ctx, st, runID, red, filepath.Dir(path), func(v store.View, o Options) error {
		looked = nil
		run := v.Run()
		if there, err := ReadHead(path); err == nil &&
			there.RunID == run.ID && there.StoreID == o.StoreID && there.Revision > run.Revision {
			r, err := FromView(v, o)
			if err != nil {
				return err
			}
			looked = show(r, look)
			return looked
		}
		s, err := newSpool(dir)
		if err != nil {
			return err
		}
		defer s.close()
		r, err := fromView(v, o, func(_ *schemas.Rollout, text []byte) error { return s.add(text) })
		if err != nil {
			return err
		}
		looked = show(r, look)
		return cmp.Or(durable.WriteFile(path, mode, func(w io.Writer) error { return r.writeResults(w, s.copyTo) }), looked)
	})
	if err != nil && (looked == nil || !errors.Is(err, looked)) {
		return fmt.Errorf("the results document %s could not be written: %w", path, err)
	}
	return err
}

func show(r *Report, look func(*Report) error) error {
	if look == nil {
		return nil
	}
	return look(r)
}

// spool keeps the rollouts of a results document in a file without a name. Their statistics stand
// before them in the document, so that a run is read once for both.
type spool struct {
	file *os.File
	d    *document
	none bool
}

func newSpool(dir string) (*spool, error) {
	f, err := os.CreateTemp(dir, "results-*.spool")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		_ = f.Close() // nothing was written to it
		return nil, err
	}
	return &spool{file: f, d: newDocument(f), none: true}, nil
}

// add adds the text of a rollout.
func (s *spool) add(text []byte) error {
	s.d.beginElement(&s.none)
	s.d.held = text
	return s.d.err
}

// copyTo writes the rollouts to a document.
func (s *spool) copyTo(d *document) error {
	if err := s.d.flush(); err != nil {
		return err
	}
	if _, err := s.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	d.spill()
	if d.err == nil {
		_, d.err = io.Copy(d.w, s.file)
	}
	d.endElements(s.none)
	return d.err
}

func (s *spool) close() { _ = s.file.Close() } // the document has the rollouts, or they are not wanted
