package serve_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/serve"
	"github.com/evalrun/evalrun/internal/testenv"
)

func newBench(b *testing.B) *world {
	b.Helper()
	return newWorld(b, func(o *serve.Options) { o.Rate = 1e6 })
}

// request writes a request as it goes over the wire.
func (w *world) request(method, path, body string) string {
	return fmt.Sprintf("%s %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", method, path, w.token, len(body), body)
}

// each sends requests over connections that stay, and tells how many a second are answered, and
// what one costs server and clients together.
func (w *world) each(b *testing.B, want int, request func(i int) string) {
	b.Helper()
	const clients = 64
	next := make(chan int)
	var work sync.WaitGroup
	used := cpu(b)
	b.ResetTimer()
	for range clients {
		conn := w.dial()
		b.Cleanup(func() { _ = conn.Close() })
		in := bufio.NewReader(conn)
		work.Go(func() {
			for i := range next {
				if _, err := io.WriteString(conn, request(i)); err != nil {
					b.Error(err)
				}
				resp, err := http.ReadResponse(in, nil)
				if err != nil {
					b.Error(err)
					continue
				}
				_, err = io.Copy(io.Discard, resp.Body)
				if err := errors.Join(err, resp.Body.Close()); err != nil || resp.StatusCode != want {
					b.Error(resp.StatusCode, err)
				}
			}
		})
	}
	for i := range b.N {
		next <- i
	}
	close(next)
	work.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
	b.ReportMetric((cpu(b)-used).Seconds()*1000/float64(b.N), "cpu-ms/request")
}

func BenchmarkSubmit(b *testing.B) {
	w := newBench(b)
	w.each(b, http.StatusCreated, func(i int) string {
		return strings.Replace(w.request("POST", "/v1/runs", `{"evalSet":"greet"}`), "\r\n", fmt.Sprintf("\r\nIdempotency-Key: %d\r\n", i), 1)
	})
}

func BenchmarkGet(b *testing.B) {
	w := newBench(b)
	path := "/v1/runs/" + w.start("greet").RunID
	w.each(b, http.StatusOK, func(int) string { return w.request("GET", path, "") })
}

// wait opens long polls for a run, and returns their connections.
func (w *world) waiting(b *testing.B, runID, query string) []net.Conn {
	b.Helper()
	conns := make([]net.Conn, testenv.Size(2000, 100))
	text := w.request("GET", "/v1/runs/"+runID+"/events?wait=60&"+query, "")
	for i := range conns {
		conns[i] = w.dial()
		b.Cleanup(func() { _ = conns[i].Close() })
		if _, err := io.WriteString(conns[i], text); err != nil {
			b.Fatal(err)
		}
	}
	for w.waits() < len(conns) { // nothing tells that a request has come as far as waiting
		time.Sleep(10 * time.Millisecond)
	}
	return conns
}

// waits counts the goroutines that wait for an event.
func (w *world) waits() int {
	buf := make([]byte, 64<<20)
	return strings.Count(string(buf[:runtime.Stack(buf, true)]), "(*eventsAPI).await(")
}

// BenchmarkIdleLongPolls tells what many who wait cost while nothing happens. Their clients are in
// the same process, and count.
func BenchmarkIdleLongPolls(b *testing.B) {
	w := newBench(b)
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	w.waiting(b, w.start("greet").RunID, "after=1")
	runtime.GC()
	runtime.ReadMemStats(&after)
	watched := time.Duration(testenv.Size(10, 1)) * time.Second
	for range b.N {
		used := cpu(b)
		time.Sleep(watched)
		b.ReportMetric(100*(cpu(b)-used).Seconds()/watched.Seconds(), "%core")
	}
	b.ReportMetric(float64(after.HeapInuse+after.StackInuse-before.HeapInuse-before.StackInuse)/(1<<20), "MB")
}

func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
