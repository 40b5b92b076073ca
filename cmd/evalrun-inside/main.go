// Command evalrun-inside is what evalrun puts into the containers of a Docker daemon. Nobody else starts
// it. It is built static, for every architecture of containers; see .ci/dist.
package main

import (
	"os"

	"github.com/evalrun/evalrun/internal/container/inside"
)

func main() { os.Exit(inside.Main(os.Args[1:])) }
