// Program gives its memory back, and goes on.
package main

import (
	"fmt"

	"github.com/evalrun/evalrun/internal/footprint"
)

func main() {
	footprint.GiveBack()
	fmt.Println(map[string]any{"still": "here"})
}
