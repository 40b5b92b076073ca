package dataset

import (
	"errors"
	"fmt"
	"io"

	"github.com/evalrun/evalrun/internal/input"
)

// EachRow calls f with each row of a file that is no part of an eval set, and with the line on
// which it begins (for a Parquet file the number of the row). An error of a row, or of f, ends it.
func EachRow(path string, f func(row *input.Node, line int) error) error {
	file, err := open(path)
	if err != nil {
		return err
	}
	defer file.close()
	for {
		row, err := file.next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if err := f(row, file.line); err != nil {
			return fmt.Errorf("%s:%d: %w", path, file.line, err)
		}
	}
}
