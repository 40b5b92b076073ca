package runner

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/report"
	"github.com/evalrun/evalrun/schemas"
)

// DefaultDir is the store's folder if none is given.
const DefaultDir = ".evalrun"

// FindStore returns the nearest DefaultDir with a store, in the folder of the process or above. If
// there is none it returns DefaultDir.
func FindStore() string {
	if dir, err := os.Getwd(); err == nil {
		for up := dir; ; up = filepath.Dir(up) {
			if there := filepath.Join(up, DefaultDir); isStore(there) {
				if up == dir {
					return DefaultDir
				}
				return there
			}
			if up == filepath.Dir(up) {
				break
			}
		}
	}
	return DefaultDir
}

// OpenRun opens the store of a run and finds the run. Its name is one that [Store.Find] knows, or
// the path of its results document. The store is in dir. If dir is empty, it is where the document
// says, or in the nearest .evalrun upward of it, or else where [FindStore] finds it.
func OpenRun(ctx context.Context, name, dir string, o OpenOptions) (*Store, Run, error) {
	o.MustExist = true
	if input.IsFile(name) {
		return openDocumentsRun(ctx, name, dir, o)
	}
	if strings.ContainsAny(name, `/\`) || strings.HasSuffix(name, ".json") {
		return nil, Run{},
			inputError("%s: there is no such file; give a results document or the id of a run (evalrun list shows them)", name)
	}
	if dir == "" {
		dir = FindStore()
	}
	s, err := Open(dir, o)
	if err != nil {
		return nil, Run{}, err
	}
	run, err := s.Find(ctx, name)
	if err != nil {
		return nil, Run{}, errors.Join(err, s.Close())
	}
	return s, run, nil
}

func openDocumentsRun(ctx context.Context, path, dir string, o OpenOptions) (*Store, Run, error) {
	head, err := report.ReadResults(path)
	if err != nil {
		return nil, Run{}, &InputError{Err: err}
	}
	if dir == "" {
		if dir, err = documentStore(path, head); err != nil {
			return nil, Run{}, err
		}
	}
	s, err := Open(dir, o)
	if err != nil {
		return nil, Run{}, err
	}
	if s.ID() != head.StoreID {
		err := inputError("%s belongs to the store %s, but the store in %s is %s; give the right one with --store", path,
			head.StoreID, s.Name(), s.ID())
		return nil, Run{}, errors.Join(err, s.Close())
	}
	if _, err := s.st.Run(ctx, head.RunID); err != nil {
		return nil, Run{}, errors.Join(inputError("%s: its run %s is not in the store %s", path, head.RunID, s.Name()),
			s.Close())
	}
	run, err := s.Find(ctx, head.RunID)
	if err != nil {
		return nil, Run{}, errors.Join(err, s.Close())
	}
	return s, run, nil
}

// documentStore finds the store of a results document, starting from the document's folder.
func documentStore(path string, head schemas.Head) (string, error) {
	folder, err := filepath.Abs(filepath.Dir(path))
	if err != nil {
		return "", err
	}
	if dir := filepath.Join(folder, filepath.FromSlash(head.StorePath)); isStore(dir) {
		return dir, nil
	}
	for up := folder; ; up = filepath.Dir(up) {
		for _, dir := range []string{up, filepath.Join(up, DefaultDir)} {
			if isStore(dir) {
				return dir, nil
			}
		}
		if up == filepath.Dir(up) {
			return "", inputError("%s: its store is not at %q beside it, and there is no .evalrun upward of it; give the store with --store",
				path, head.StorePath)
		}
	}
}

func isStore(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "store.db"))
	return err == nil
}
