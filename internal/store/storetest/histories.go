package storetest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
)

// historySpecs plays random histories on a store that three processes share, one of them dead, and
// compares it with the model after each operation. EVALRUN_STORE_HISTORIES says how many (default
// 2); a history that fails is shortened and printed.
func historySpecs(s *suite) {
	n := 2
	if text := os.Getenv("EVALRUN_STORE_HISTORIES"); text != "" {
		n, _ = strconv.Atoi(text)
	}
	for seed := range n {
		s.spec(fmt.Sprintf("history %d", seed), func(w *world) {
			ops := history(rand.New(rand.NewPCG(uint64(seed), 12)), 80)
			err := play(w, ops)
			if err == nil {
				return
			}
			// Take away what is not needed for it to fail.
			for i := len(ops) - 1; i >= 0; i-- {
				if shorter := slices.Delete(slices.Clone(ops), i, i+1); len(ops) > 1 && play(w, shorter) != nil {
					ops = shorter
				}
			}
			if shortest := play(w, ops); shortest != nil {
				err = shortest
			}
			var text strings.Builder
			for _, o := range ops {
				fmt.Fprintf(&text, "\n\t%s", o)
			}
			w.Fatalf("%v\nthe operations:%s", err, &text)
		})
	}
}

// op is an operation by a store. Its numbers choose among what is there when it is applied, so that
// a history from which operations are taken is still one.
type op struct {
	kind    string
	store   int
	a, b, c int
}

func (o op) String() string {
	return fmt.Sprintf("%s(store %d; %d, %d, %d)", o.kind, o.store, o.a, o.b, o.c)
}

// kinds are the operations, those that happen often more than once.
var kinds = []string{
	"claim", "claim", "claim", "commit", "commit", "commit", "commit", "commit", "result", "score", "score", "finish",
	"deliver", "deliver", "deliver", "deliverKey", "claimTriggers", "claimTriggers", "started", "pending", "failed",
	"answered", "cancel", "renew", "forget", "limit", "advance", "advance"}

func history(r *rand.Rand, n int) []op {
	ops := make([]op, n)
	for i := range ops {
		ops[i] = op{kinds[r.IntN(len(kinds))], r.IntN(3), r.IntN(1000), r.IntN(1000), r.IntN(1000)}
	}
	return ops
}
