package report

import (
	"io"
	"os"
)

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
