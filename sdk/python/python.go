// Package python carries evalrun's side in Python: the package evalrun, which the program itself runs
// with the interpreter of a user's project.
package python

import "embed"

// Files has the folder evalrun.
//
//go:embed evalrun/*.py evalrun/py.typed
var Files embed.FS
