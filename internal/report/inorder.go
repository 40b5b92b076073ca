package report

import (
	"fmt"
	"runtime"
	"sync"
)

// inOrder calls work on every processor with all values that read reads, and use with the results
// in the order of reading. It holds a few of them at a time, and ends with the first error.
func inOrder[In, Out any](read func(func(In) error) error, work func(In) (Out, error), use func(Out) error) error {
	type result struct {
		out Out
		err error
	}
	var (
		working sync.WaitGroup
		started []chan result
		most    = 8 * runtime.GOMAXPROCS(0)
	)
	defer working.Wait()
	useFirst := func() error {
		first := <-started[0]
		started = started[1:]
		if first.err != nil {
			return first.err
		}
		return use(first.out)
	}
	err := read(func(in In) error {
		if len(started) == most {
			if err := useFirst(); err != nil {
				return err
			}
		}
		done := make(chan result, 1)
		started = append(started, done)
		working.Go(func() {
			var r result
			defer func() {
				if p := recover(); p != nil { // a panic in a goroutine would end the process
					r.err = fmt.Errorf("evalrun failed with it: %v", p)
				}
				done <- r
			}()
			r.out, r.err = work(in)
		})
		return nil
	})
	for err == nil && len(started) > 0 {
		err = useFirst()
	}
	return err
}
