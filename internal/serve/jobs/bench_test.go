package jobs_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/testenv"
)

// clients is how many clients the benchmarks of requests have at once.
const clients = 32

// request measures one kind of request, sent by several clients over connections that stay. On a
// machine that does other work, too, the processor time tells more than the rate; both are those of
// server and clients together.
func (w *world) request(b *testing.B, status int, method, path, body string) {
	b.Helper()
	tr := &http.Transport{MaxIdleConnsPerHost: clients}
	defer tr.CloseIdleConnections()
	b.SetParallelism(clients / runtime.GOMAXPROCS(0))
	b.ResetTimer()
	began := cpu()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r, err := http.NewRequestWithContext(b.Context(), method, w.server.URL+path, strings.NewReader(body))
			if err != nil {
				b.Error(err)
				return
			}
			resp, err := tr.RoundTrip(r)
			if err != nil {
				b.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			if resp.StatusCode != status {
				b.Errorf("status %d", resp.StatusCode)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
	b.ReportMetric(float64((cpu()-began).Microseconds())/float64(b.N), "cpu-µs/op")
}

func BenchmarkSubmit(b *testing.B) {
	w := newWorld(b)
	w.request(b, http.StatusCreated, "POST", "/jobs", `{"capability":"done","submitted_by":"bench","submitted_payload":{}}`)
}

func BenchmarkGet(b *testing.B) {
	w := newWorld(b)
	id := w.submit("done", "")
	w.request(b, http.StatusOK, "GET", "/jobs/"+id, "")
}

func BenchmarkPost(b *testing.B) {
	w := newWorld(b)
	id := w.submit("done", "")
	w.request(b, http.StatusOK, "POST", "/jobs/"+id+"/events", `{"type":"tick","payload":{"n":1}}`)
}

// BenchmarkIdlePolls has many clients wait for an event of one job. It reports what the waiting
// costs, and how long an event takes to the last of them. The memory is that of the server and of
// the clients' ends of the connections.
func BenchmarkIdlePolls(b *testing.B) {
	w := newWorld(b)
	id := w.submit("done", "")
	addr := strings.TrimPrefix(w.server.URL, "http://")
	before := heap()
	conns := make([]net.Conn, testenv.Size(2000, 100))
	for i := range conns {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Close()
		conns[i] = conn
	}
	after := int64(0)
	var lasts []time.Duration
	for i := range b.N {
		for _, conn := range conns {
			if _, err := fmt.Fprintf(conn, "GET /jobs/%s/events?after=%d&wait=60 HTTP/1.1\r\nHost: localhost\r\n\r\n", id, after); err != nil {
				b.Fatal(err)
			}
		}
		time.Sleep(500 * time.Millisecond) // until all of them wait
		if i == 0 {
			b.ReportMetric(float64(heap()-before)/(1<<20), "MB")
			began := cpu()
			watched := time.Duration(testenv.Size(2000, 200)) * time.Millisecond
			time.Sleep(watched)
			b.ReportMetric(100*(cpu()-began).Seconds()/watched.Seconds(), "%core")
		}
		ends := make([]time.Duration, len(conns))
		var ready, done sync.WaitGroup
		ready.Add(len(conns))
		var posted time.Time
		for i, conn := range conns {
			done.Go(func() {
				ready.Done()
				resp, err := http.ReadResponse(bufio.NewReaderSize(conn, 512), nil)
				if err != nil {
					b.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
				ends[i] = time.Since(posted)
			})
		}
		ready.Wait()
		posted = time.Now()
		if r := w.post(id, `{"type":"tick"}`); r.status != http.StatusOK {
			b.Fatal(r)
		}
		done.Wait()
		after++
		lasts = append(lasts, slices.Max(ends))
	}
	slices.Sort(lasts)
	b.ReportMetric(float64(lasts[len(lasts)/2].Microseconds())/1000, "ms-to-last")
}

// heap is the memory in use after what can be freed was.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// cpu is the processor time that this process has used.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
