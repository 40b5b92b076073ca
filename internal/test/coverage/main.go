// Coverage simulates how often intervals hold what they promise, with the code that is shipped. It
// counts how often the true mean lies within the 95 % interval and how often a gate by interval
// whose minimum is the truth is met, and measures how wide the intervals are, each beside Student's
// t. It prints the tables of docs/coverage.md:
//
//	go run ./internal/test/coverage -seed 1 -experiments 2000
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	seed := flag.Uint64("seed", 1, "of all random numbers")
	experiments := flag.Int("experiments", 2000, "how many for each cell")
	flag.Parse()
	if flag.NArg() > 0 || *experiments < 1 {
		flag.Usage()
		os.Exit(2)
	}
	fmt.Print(tables(simulate(cells(), *seed, *experiments)))
}
