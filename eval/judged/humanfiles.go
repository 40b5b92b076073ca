package judged

import (
	"errors"
	"io/fs"
	"os"
)

// maxShownFiles is how many files of a workspace are listed for raters.
const maxShownFiles = 200

// shownFile is a file that the agent's workspace has. Path is slash-separated, Size in bytes.
type shownFile struct {
	Path string `json:"path"`
	Size int64  `json:"size"`
}

// filesOf returns the regular files of a workspace in the order of their paths, without the files
// of git; more says that there are others. A missing workspace has none.
func filesOf(workspace string) (files []shownFile, more bool, err error) {
	if workspace == "" {
		return nil, false, nil
	}
	root, err := os.OpenRoot(workspace)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	} else if err != nil {
		return nil, false, err
	}
	defer func() { _ = root.Close() }() // only read
	err = fs.WalkDir(root.FS(), ".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil && path == ".":
			return err
		case err != nil:
			return nil //nolint:nilerr // what the agent has closed is not shown
		case entry.IsDir() && entry.Name() == ".git":
			return fs.SkipDir
		case !entry.Type().IsRegular():
			return nil
		case len(files) == maxShownFiles:
			more = true
			return fs.SkipAll
		}
		info, err := entry.Info()
		if err == nil {
			files = append(files, shownFile{path, info.Size()})
		}
		return nil //nolint:nilerr // it has gone
	})
	return files, more, err
}
