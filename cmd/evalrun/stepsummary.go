package main

import (
	"bytes"
	"errors"
	"io"
	"os"

	"github.com/evalrun/evalrun/internal/durable"
)

// addSummary adds the summary of a run to a file that others write to as well, such as that of a
// step on GitHub. It replaces an earlier summary of the same run, whose verdict no longer holds.
func addSummary(path, runID string, write func(io.Writer) error) error {
	begin, end := []byte("<!-- evalrun: run "+runID+" -->\n"), []byte("\n<!-- evalrun: end of run "+runID+" -->\n")
	text := bytes.NewBuffer(bytes.Clone(begin))
	if err := write(text); err != nil {
		return err
	}
	section := append(bytes.TrimRight(text.Bytes(), "\n"), end...)
	if target, isFile, err := durable.Follow(path); err == nil && isFile {
		there, err := os.ReadFile(target)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		before, rest, begun := bytes.Cut(there, begin)
		_, after, ended := bytes.Cut(rest, end)
		if begun && ended {
			return durable.WriteOutput(path, 0o644, func(w io.Writer) error {
				_, err := w.Write(bytes.Join([][]byte{before, section, after}, nil))
				return err
			})
		}
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(section)
	return errors.Join(err, f.Close())
}
