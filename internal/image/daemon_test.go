package image_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/evalrun/evalrun/internal/docker"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/image"
)

// What a daemon has that is not for its containers, what it has no room for, and half an answer, are faults of the
// task's image that say so.
func TestAnswersOfADaemon(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ image, build, says string }{
		{`{"Id":"sha256:1","Os":"linux","Architecture":"amd64","Config":{}}`, `{"aux":{"ID":"sha256:1"}}`, "is an image for linux/amd64, and the Docker daemon at tcp://"},
		{`{"Id":"sha256:1","Os":"linux","Arch`, `{"aux":{"ID":"sha256:1"}}`, "the answer of the Docker daemon is not what its API says"},
		{`{}`, `{"stream":"Step 1/1"}{"error":"write /root: no space left on device"}`, "no space left on device"},
		{`{}`, `{"stream":"Step 1/1"}{"err`, "the answer of the Docker daemon broke off"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			answer := c.image
			switch strings.TrimPrefix(r.URL.Path, "/v1.41") {
			case "/version":
				answer = `{"Version":"20.10.24","ApiVersion":"1.41","MinAPIVersion":"1.12","Os":"linux","Arch":"arm64"}`
			case "/build":
				answer = c.build
			}
			_, _ = io.WriteString(w, answer)
		}))
		t.Cleanup(server.Close)
		d, err := docker.OpenAt(t.Context(), docker.Endpoint{Host: "tcp" + strings.TrimPrefix(server.URL, "http")})
		if err != nil {
			t.Fatal(err)
		}
		_, err = open(t, t.TempDir()).GetIn(t.Context(), d, image.Spec{Context: folder(t, "Dockerfile", "FROM scratch\n")}, func(string) {})
		faultOf(t, err, fault.Image, c.says)
	}
}

// A build that a daemon has failed is not tried again in the same run; one in which the daemon has gone
// is, and may succeed.
func TestBuildOfADaemonThatGoes(t *testing.T) {
	t.Parallel()
	var builds atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path := strings.TrimPrefix(r.URL.Path, "/v1.41"); {
		case path == "/version":
			_, _ = io.WriteString(w, `{"Version":"20.10.24","ApiVersion":"1.41","MinAPIVersion":"1.12","Os":"linux","Arch":"amd64"}`)
		case path == "/build" && builds.Add(1) == 1:
			_, _ = io.Copy(io.Discard, r.Body)
			panic(http.ErrAbortHandler) // the connection ends
		case path == "/build":
			_, _ = io.Copy(io.Discard, r.Body)
			_, _ = io.WriteString(w, `{"error":"COPY failed"}`)
		}
	}))
	t.Cleanup(server.Close)
	c, err := docker.OpenAt(t.Context(), docker.Endpoint{Host: "tcp" + strings.TrimPrefix(server.URL, "http")})
	if err != nil {
		t.Fatal(err)
	}
	all, err := image.Open(t.TempDir(), image.Options{})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte("FROM scratch\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"EOF", "COPY failed", "COPY failed"} {
		_, err := all.GetIn(t.Context(), c, image.Spec{Context: dir, For: "run"}, func(string) {})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if n := builds.Load(); n != 2 {
		t.Errorf("the daemon was asked for %d builds", n)
	}
}
