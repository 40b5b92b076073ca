package report

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"testing"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/plans"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/testenv"
)

// BenchmarkWriteResults reports the most that the heap grew while the document was written: it must
// not depend on the number of rollouts.
func BenchmarkWriteResults(b *testing.B) {
	for _, n := range []int{testenv.Size(1000, 100), testenv.Size(10000, 1000)} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			r := largeRun(b, n)
			o := Options{StoreID: "STORE", StoreDir: r.st.Dir(), StorePath: ".", Plan: plans.Plan{Set: r.set}}
			var peak uint64
			b.ReportAllocs()
			for b.Loop() {
				r.view(func(v store.View) {
					runtime.GC()
					m := &heapMeter{}
					r.check(WriteResults(m, v, o))
					peak = max(peak, m.peak-m.base)
					b.SetBytes(m.size)
				})
			}
			b.ReportMetric(float64(peak)/(1<<20), "peak-MiB")
		})
	}
}

// TestMemoryDoesNotGrowWithTheRun is the benchmark's claim as a test.
func TestMemoryDoesNotGrowWithTheRun(t *testing.T) {
	testenv.NeedLong(t)
	peak := func(n int) uint64 {
		r := largeRun(t, n)
		o := Options{StoreID: "STORE", StoreDir: r.st.Dir(), StorePath: ".", Plan: plans.Plan{Set: r.set}}
		m := &heapMeter{}
		r.view(func(v store.View) {
			runtime.GC()
			r.check(WriteResults(m, v, o))
		})
		return m.peak - m.base
	}
	small, large := peak(100), peak(1000)
	if large > small+4<<20 {
		t.Errorf("the heap grew by %d KiB with 100 rollouts and by %d KiB with 1000", small>>10, large>>10)
	}
}

// heapMeter is a writer that looks at the live heap now and then.
type heapMeter struct {
	size       int64
	writes     int
	base, peak uint64
}

func (m *heapMeter) Write(p []byte) (int, error) {
	if m.writes%32 == 0 {
		runtime.GC() // so that only what is in use counts
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		if m.writes == 0 {
			m.base = s.HeapAlloc
		}
		m.peak = max(m.peak, s.HeapAlloc)
	}
	m.writes++
	m.size += int64(len(p))
	return io.Discard.Write(p)
}

// largeRun has n rollouts: half of them scored, half of them suspended.
func largeRun(t testing.TB, n int) *testRun {
	evaluations := make([]eval.Evaluation, n)
	for i := range evaluations {
		evaluations[i] = evaluation(fmt.Sprint("e", i), fmt.Sprint("Evaluation ", i))
	}
	r := newRun(t, setOf([]eval.Definition{exact("exact")}, evaluations...))
	r.claim(n)
	data, err := json.Marshal([]eval.Result{score("exact", 1)})
	r.check(err)
	for i := range evaluations {
		id := evaluations[i].ID
		if i%2 == 1 {
			r.suspend(id, "", 0, jobValue)
			continue
		}
		token := r.claims[id].Token
		_, err := r.st.CommitSegment(t.Context(), token, store.SegmentEnd{Outcome: store.OutcomeCompleted, Output: json.RawMessage(`{"result":8.0}`)})
		r.check(err)
		r.check(r.st.RecordResult(t.Context(), token, store.Result{EvaluatorID: "exact", Data: data}))
		r.check(r.st.Finish(t.Context(), token, ptr(1.0)))
	}
	return r
}
