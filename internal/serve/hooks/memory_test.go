package hooks

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/service"
)

// A document of the worst form costs a small multiple of its size.
func TestALargeBodyNeedsLittleMemory(t *testing.T) {
	body := "[" + strings.Repeat("1,", defaultMaxBody/2-2) + "1]"
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := compact([]byte(body)); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if cost := after.TotalAlloc - before.TotalAlloc; cost > 8*defaultMaxBody {
		t.Errorf("%d bytes cost %d", len(body), cost)
	}
}

// However many large bodies come at once, only so many are read; small ones are not held up.
func TestLargeBodiesTakeTurns(t *testing.T) {
	w := newWorld(t)
	h, err := New(Options{Service: service.New(w.runs, service.Config{}, service.Options{})})
	if err != nil {
		t.Fatal(err)
	}
	w.server.Config.Handler = h
	var halves []*io.PipeWriter
	for range maxLarge {
		body, half := io.Pipe()
		halves = append(halves, half)
		req := httptest.NewRequest(http.MethodPost, w.url(w.suspended()), body)
		go h.ServeHTTP(httptest.NewRecorder(), req)
		if _, err := io.WriteString(half, `"`+strings.Repeat("x", largeBody+1)); err != nil { // read beyond what is small
			t.Fatal(err)
		}
	}
	if status, answer := w.post(w.url(w.suspended()), `1`); status != http.StatusAccepted {
		t.Errorf("a small one: %d %s", status, answer)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	id := w.suspended()
	large := `"` + strings.Repeat("x", largeBody+1) + `"`
	out := httptest.NewRecorder()
	h.ServeHTTP(out, httptest.NewRequest(http.MethodPost, w.url(id), strings.NewReader(large)).WithContext(ctx))
	if out.Code != http.StatusServiceUnavailable {
		t.Errorf("one more large one: %d %s", out.Code, out.Body)
	}
	for _, half := range halves {
		_ = half.CloseWithError(io.ErrUnexpectedEOF)
	}
	if status, answer := w.post(w.url(id), large); status != http.StatusAccepted {
		t.Errorf("when they have gone: %d %s", status, answer)
	}
}
