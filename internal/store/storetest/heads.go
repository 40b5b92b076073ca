package storetest

import (
	"errors"

	"github.com/evalrun/evalrun/internal/store"
)

func headSpecs(s *suite) {
	s.spec("the head of a run is the run without its counts", func(w *world) {
		runID, _ := w.create(3)
		for range 2 { // as it was made, and when it has ended
			want, err := w.another().Run(w.ctx, runID)
			w.must(err)
			want.Counts = store.Counts{}
			got, err := w.another().RunHead(w.ctx, runID)
			w.must(err)
			equal(w, "head", got, want)
			w.cancel(runID)
		}
	})

	s.spec("a run that is not there has no head", func(w *world) {
		if _, err := w.a.RunHead(w.ctx, "nobody"); !errors.Is(err, store.ErrNotFound) {
			w.Fatal(err)
		}
	})
}
