package evalset

import (
	"errors"
	"io/fs"

	"github.com/evalrun/evalrun/internal/input"
)

func asProblems(err error) input.Problems {
	var p input.Problem
	if errors.As(err, &p) {
		return input.Problems{p}
	}
	return nil
}

// loader reads one eval set.
type loader struct {
	input.Reader
	files    fs.FS
	filesDir string
}
