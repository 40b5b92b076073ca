// Package typescript carries evalrun's side in Node: a file which the program itself runs with the
// Node of a user's project, and which the npm package has, too.
package typescript

import "embed"

// Files has the module evalrun.mjs and its types.
//
//go:embed evalrun.mjs evalrun.d.mts
var Files embed.FS
