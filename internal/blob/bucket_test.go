package blob

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/testenv"
)

// Given an S3 that is in trouble for a while, when it is asked, then what passes is tried again; what does not is an
// error that says what to do.
func TestAnS3InTrouble(t *testing.T) {
	answer := func(status int, code string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = fmt.Fprintf(w, "<Error><Code>%s</Code></Error>", code)
		}
	}
	cut := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "4")
		_, _ = w.Write([]byte("ab"))
	}
	reset := func(w http.ResponseWriter, _ *http.Request) {
		if c, _, err := w.(http.Hijacker).Hijack(); err == nil {
			_ = c.(*net.TCPConn).SetLinger(0)
			_ = c.Close()
		}
	}
	ok := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("abcd")) }
	for _, c := range []struct {
		name  string
		do    http.HandlerFunc
		times int64 // how often it does that, before it does well
		want  string
		asked int64
	}{
		{"slow down", answer(503, "SlowDown"), 3, "", 4},
		{"cut in the middle", cut, 2, "", 3},
		{"reset", reset, 2, "", 3},
		{"always slow down", answer(503, "SlowDown"), 100, "answers 503 SlowDown, 6 times: try again", tries},
		{"no right", answer(403, "AccessDenied"), 100, "may not read, write and list there", 1},
		{"no bucket", answer(404, "NoSuchBucket"), 100, "make the bucket, or name another one", 1},
		{"no object", answer(404, "NoSuchKey"), 100, "there is no such object", 1},
		{"a clock that is wrong", answer(403, "RequestTimeTooSkewed"), 100, "set this machine's clock", 1},
		{"another region", answer(301, "PermanentRedirect"), 100, "set AWS_REGION", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			var asked atomic.Int64
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if asked.Add(1) <= c.times {
					c.do(w, r)
					return
				}
				ok(w, r)
			}))
			t.Cleanup(server.Close)
			b := bucketAt(t, server.URL, "s3://b/prefix")
			data, err := b.Get(t.Context(), "x", 0, 4)
			if c.want == "" && (err != nil || string(data) != "abcd") || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%q, %v; expected %q", data, err, c.want)
			}
			if asked.Load() != c.asked {
				t.Errorf("asked %d times, expected %d", asked.Load(), c.asked)
			}
		})
	}
}

func bucketAt(t *testing.T, endpoint, place string) *bucket {
	t.Helper()
	t.Setenv("AWS_ACCESS_KEY_ID", "evalrun")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "correct-horse-battery")
	t.Setenv("AWS_ENDPOINT_URL_S3", endpoint)
	s, err := Open(place)
	if err != nil {
		t.Fatal(err)
	}
	b := s.(*bucket)
	b.pause = time.Millisecond
	return b
}

// A folder, and an S3 server that checks signatures, do the same.
func TestPlaces(t *testing.T) {
	t.Run("folder", func(t *testing.T) {
		s, err := Open("file://" + t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		aPlace(t, s)
	})
	t.Run("bucket", func(t *testing.T) {
		endpoint := testenv.S3(t)
		b := bucketAt(t, endpoint, "s3://evalrun/a prefix+ü")
		if _, err := b.call(t.Context(), http.MethodPut, "/", nil, nil, nil); err != nil { // makes the bucket
			t.Fatal(err)
		}
		aPlace(t, b)
		other := bucketAt(t, endpoint, "s3://evalrun")
		other.keys.SecretAccessKey = "wrong"
		if err := other.Put(t.Context(), "x", nil); err == nil || !strings.Contains(err.Error(), "its keys (AWS_ACCESS_KEY_ID) are wrong") {
			t.Errorf("a wrong key: %v", err)
		}
		if _, err := bucketAt(t, endpoint, "s3://nobodys").Get(t.Context(), "x", 0, 1); err == nil || !strings.Contains(err.Error(), "make the bucket") {
			t.Errorf("another bucket: %v", err)
		}
	})
}

func aPlace(t *testing.T, s Store) {
	t.Helper()
	ctx := t.Context()
	large := bytes.Repeat([]byte("0123456789"), 400_000)
	for _, name := range []string{"one/a", "one/b", "two/ü +c"} {
		if err := s.Put(ctx, name, large); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := s.Get(ctx, "two/ü +c", 3_999_995, 5); err != nil || string(got) != "56789" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := s.Get(ctx, "one/a", 0, int64(len(large))); err != nil || !bytes.Equal(got, large) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	for name, at := range map[string]int64{"one/none": 0, "one/a": 3_999_999, "one/b": 5_000_000} {
		if _, err := s.Get(ctx, name, at, 2); !errors.Is(err, ErrMissing) {
			t.Errorf("%s at %d: %v", name, at, err)
		}
	}
	list := func(folder string, before time.Time) (names []string) {
		t.Helper()
		if err := s.List(ctx, folder, before, func(name string) error { names = append(names, name); return nil }); err != nil {
			t.Fatal(err)
		}
		slices.Sort(names)
		return names
	}
	soon := time.Now().Add(time.Hour)
	if got := list("one/", soon); !slices.Equal(got, []string{"one/a", "one/b"}) {
		t.Errorf("%q", got)
	}
	if got := list("one/", time.Now().Add(-time.Hour)); got != nil {
		t.Errorf("an hour ago: %q", got)
	}
	if err := errors.Join(s.Delete(ctx, "one/a"), s.Delete(ctx, "one/a")); err != nil {
		t.Error(err)
	}
	if got := append(list("one/", soon), list("none/", soon)...); !slices.Equal(got, []string{"one/b"}) {
		t.Errorf("%q", got)
	}
}

// What names no place is refused, and a folder's objects are in it.
func TestBadPlaces(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	for place, want := range map[string]string{
		"file://relative/x": "expected file:///FOLDER", "/x": "expected file:///FOLDER", "s3:///x": "expected file:///FOLDER",
		"gs://b/x": "expected file:///FOLDER", "s3://key:secret@b/x": "expected file:///FOLDER",
		"s3://b/x": "needs AWS_ACCESS_KEY_ID",
	} {
		if _, err := Open(place); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret@") {
			t.Errorf("%s: %v", place, err)
		}
	}
	dir := t.TempDir()
	s, err := Open("file://" + filepath.Join(dir, "in"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "in"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := s.Put(t.Context(), "../x", nil); err == nil {
		t.Error("an object was put outside")
	}
	if _, err := os.Lstat(filepath.Join(dir, "x")); !errors.Is(err, os.ErrNotExist) {
		t.Error("it is there")
	}
}
