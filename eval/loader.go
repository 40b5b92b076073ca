package eval

import (
	"errors"
	"io/fs"
	"strings"

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

// list joins names for a message.
func list(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

func ids(defs []Definition) []string {
	out := make([]string, len(defs))
	for i, def := range defs {
		out[i] = def.ID
	}
	return out
}

func hasDefinition(set *Set, id string) bool {
	for _, def := range set.Evaluators {
		if def.ID == id {
			return true
		}
	}
	return false
}
