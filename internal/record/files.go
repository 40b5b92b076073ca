package record

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// These are the files that a segment leaves in the folder of its attempt. A file without content is
// left out.
const (
	FileOutput = "output.json" // the agent's document, valid or not
	FileStdout = "stdout.log"  // stdout, if it has more than the document
	FileStderr = "stderr.log"
	FileTrace  = "trace.jsonl" // written by the agent

	// FolderSteps has a folder for each step of a task, with files as above.
	FolderSteps = "steps"

	// VerifierLog is what a task's verifier printed. It is in a rollout's folder verifier, and in
	// those of its steps.
	VerifierLog = "test-stdout.txt"
)

// FilesIn returns those of the names that are files in a folder.
func FilesIn(dir string, names ...string) ([]string, error) {
	var files []string
	for _, name := range names {
		info, err := os.Lstat(filepath.Join(dir, name))
		switch {
		case errors.Is(err, os.ErrNotExist):
		case err != nil:
			return nil, err
		case info.Mode().IsRegular():
			files = append(files, name)
		}
	}
	return files, nil
}

// OpenRegular opens a file that an agent may have written. It returns nil if there is none, or
// something else than a plain file.
func OpenRegular(path string) (*os.File, error) {
	// O_NONBLOCK: a FIFO in its place must not hold us up.
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.ENXIO) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		_ = file.Close() // nothing was read
		return nil, err
	}
	return file, nil
}

// ReadRegular reads up to most bytes of such a file.
func ReadRegular(path string, most int64) ([]byte, error) {
	file, err := OpenRegular(path)
	if file == nil || err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // it was only read
	return io.ReadAll(io.LimitReader(file, most))
}
