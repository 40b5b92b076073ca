package docker_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/docker"
)

// answers is a daemon on loopback that answers every path as it is told.
func answers(t *testing.T, paths map[string]string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, ok := paths[r.URL.Path]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			text = `{"message":"no such thing"}`
		}
		_, _ = io.WriteString(w, text)
	}))
	t.Cleanup(server.Close)
	return "tcp" + strings.TrimPrefix(server.URL, "http")
}

const works = `{"Version":"20.10.24","ApiVersion":"1.41","MinAPIVersion":"1.12","Os":"linux","Arch":"arm64"}`

// What cannot be spoken to is named before anything is done, with what to do.
func TestOpen(t *testing.T) {
	config, spoiled := contexts(t, map[string]string{"far": `{"docker":{"Host":"unix:///far"}}`, "empty": `{}`}), t.TempDir()
	for _, name := range []string{"cert.pem", "key.pem"} {
		if err := os.WriteFile(filepath.Join(spoiled, name), []byte("none"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		env  map[string]string
		says string
	}{
		"ssh":        {map[string]string{"DOCKER_HOST": "ssh://-oProxyCommand=x"}, "expected ssh://[USER@]HOST[:PORT]"},
		"ssh path":   {map[string]string{"DOCKER_HOST": "ssh://host/var/run/docker.sock"}, "expected ssh://[USER@]HOST[:PORT]"},
		"ssh query":  {map[string]string{"DOCKER_HOST": "ssh://host?x=y"}, "expected ssh://[USER@]HOST[:PORT]"},
		"password":   {map[string]string{"DOCKER_HOST": "ssh://me:known@host"}, "has a password"},
		"no address": {map[string]string{"DOCKER_HOST": "ssh://me:known@host:port"}, `"ssh://me:...@host:port": expected`},
		"tcp's":      {map[string]string{"DOCKER_HOST": "tcp://me:known@host:1"}, `"tcp://me:...@host:1": expected`},
		"key":        {map[string]string{"DOCKER_HOST": "tcp://host:2376", "DOCKER_CERT_PATH": spoiled}, "the certificate for the Docker daemon (cert.pem and key.pem in " + spoiled},
		"plain":      {map[string]string{"DOCKER_HOST": behindTLS(t)}, "it is behind TLS: set DOCKER_TLS_VERIFY=1"},
		"stranger":   {map[string]string{"DOCKER_HOST": behindTLS(t), "DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": t.TempDir()}, "certificate"},
		"no context": {map[string]string{"DOCKER_CONTEXT": "mine"}, `there is no Docker context "mine" in ` + config},
		"empty":      {map[string]string{"DOCKER_CONTEXT": "empty"}, `the Docker context "empty" (` + config},
		"context":    {map[string]string{"DOCKER_CONTEXT": "far"}, "the Docker daemon at unix:///far does not answer"},
		"chosen":     {nil, "the Docker daemon at unix:///far does not answer"},
		"over it":    {map[string]string{"DOCKER_CONTEXT": "far", "DOCKER_HOST": "unix:///near"}, "the Docker daemon at unix:///near does not answer"},
		"no scheme":  {map[string]string{"DOCKER_HOST": "/var/run/docker.sock"}, "expected unix:///PATH, tcp://HOST:PORT or ssh://"},
		"no port":    {map[string]string{"DOCKER_HOST": "tcp://host"}, "expected tcp://HOST:PORT"},
		"absent":     {map[string]string{"DOCKER_HOST": "unix:///nothing"}, "does not answer: dial unix /nothing"},
		"too old":    {map[string]string{"DOCKER_HOST": answers(t, map[string]string{"/version": strings.ReplaceAll(works, "1.41", "1.40")})}, "is too old: it is 20.10.24 with API 1.40"},
		"too new":    {map[string]string{"DOCKER_HOST": answers(t, map[string]string{"/version": strings.NewReplacer("1.41", "1.99", "1.12", "1.90").Replace(works)})}, "is too new: its oldest API is 1.90"},
		"Windows":    {map[string]string{"DOCKER_HOST": answers(t, map[string]string{"/version": strings.ReplaceAll(works, "linux", "windows")})}, "runs containers of windows"},
		"half":       {map[string]string{"DOCKER_HOST": answers(t, map[string]string{"/version": works[:40]})}, "is not what its API says"},
		"not one":    {map[string]string{"DOCKER_HOST": answers(t, map[string]string{"/version": "{}"})}, "is no Docker daemon"},
		"something":  {map[string]string{"DOCKER_HOST": answers(t, nil)}, "no such thing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("DOCKER_CONFIG", config)
			for _, variable := range []string{"DOCKER_HOST", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH", "DOCKER_CONTEXT"} {
				t.Setenv(variable, c.env[variable])
			}
			if _, err := docker.Open(t.Context()); err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "known@") {
				t.Errorf("got %v, want %q", err, c.says)
			}
		})
	}
}

// behindTLS is a server that speaks TLS alone, with a certificate that nobody knows.
func behindTLS(t *testing.T) string {
	t.Helper()
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // of handshakes that fail
	server.StartTLS()
	t.Cleanup(server.Close)
	return "tcp" + strings.TrimPrefix(server.URL, "https")
}

// contexts is a folder of the docker command with contexts, of which far is chosen.
func contexts(t *testing.T, endpoints map[string]string) string {
	t.Helper()
	config := t.TempDir()
	for name, of := range endpoints {
		dir := filepath.Join(config, "contexts", "meta", fmt.Sprintf("%x", sha256.Sum256([]byte(name))))
		if err := errors.Join(os.MkdirAll(dir, 0o700),
			os.WriteFile(filepath.Join(dir, "meta.json"), []byte(`{"Name":"`+name+`","Metadata":{},"Endpoints":`+of+`}`), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(config, "config.json"), []byte(`{"auths":{},"currentContext":"far"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	return config
}

// An answer that tells of an error, or breaks off, is one.
func TestBuildThatFails(t *testing.T) {
	for said, want := range map[string]string{
		`{"stream":"Step 1/2"}{"error":"it failed"}`:        "it failed",
		`{"stream":"Step 1/2"}{"stre`:                       "broke off",
		`{"stream":"Step 1/2"}`:                             "does not say which",
		`{"aux":{"ID":"sha256:1"}}{"stream":"all is well"}`: "",
	} {
		c, err := docker.OpenAt(t.Context(), docker.Endpoint{Host: answers(t, map[string]string{"/version": works, "/v1.41/build": said})})
		if err != nil {
			t.Fatal(err)
		}
		id, err := c.Build(t.Context(), strings.NewReader(""), docker.Build{Dockerfile: "Dockerfile"}, io.Discard)
		if want == "" && (err != nil || id != "sha256:1") || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %q, %v", said, id, err)
		}
	}
}

// The steps of a build have the daemon's own network where it has no bridge; otherwise they had none.
func TestNetworkOfABuild(t *testing.T) {
	t.Parallel()
	for _, bridged := range []bool{true, false} {
		asked := ""
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch path := strings.TrimPrefix(r.URL.Path, "/v1.41"); {
			case path == "/version":
				_, _ = io.WriteString(w, works)
			case path == "/build":
				asked = r.URL.Query().Get("networkmode")
				_, _ = io.WriteString(w, `{"aux":{"ID":"sha256:1"}}`)
			case path != "/networks/bridge" || !bridged:
				w.WriteHeader(http.StatusNotFound)
			}
		}))
		t.Cleanup(server.Close)
		c, err := docker.OpenAt(t.Context(), docker.Endpoint{Host: "tcp" + strings.TrimPrefix(server.URL, "http")})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Build(t.Context(), strings.NewReader(""), docker.Build{Dockerfile: "Dockerfile"}, io.Discard); err != nil {
			t.Error(err)
		}
		if want := map[bool]string{false: "host"}[bridged]; asked != want {
			t.Errorf("with a bridge: %v; the build has the network %q, want %q", bridged, asked, want)
		}
	}
}

// entries makes an archive.
func entries(t *testing.T, headers ...tar.Header) io.Reader {
	t.Helper()
	var out bytes.Buffer
	a := tar.NewWriter(&out)
	for _, h := range headers {
		content := strings.Repeat("x", int(h.Size))
		if err := a.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(a, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	return &out
}

// What a container sends leads out of the folder neither by its names nor by its links, and cannot
// fill the disk.
func TestExtract(t *testing.T) {
	dir := t.TempDir()
	outside := filepath.Join(dir, "outside")
	if err := os.WriteFile(outside, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, headers := range map[string][]tar.Header{
		"names":     {{Typeflag: tar.TypeReg, Name: "logs/../../../outside", Size: 3}},
		"absolute":  {{Typeflag: tar.TypeReg, Name: outside, Size: 3}},
		"link":      {{Typeflag: tar.TypeSymlink, Name: "logs", Linkname: dir}, {Typeflag: tar.TypeReg, Name: "logs/outside", Size: 3}},
		"link in":   {{Typeflag: tar.TypeSymlink, Name: "logs/a", Linkname: "../.."}, {Typeflag: tar.TypeReg, Name: "logs/a/outside", Size: 3}},
		"hard link": {{Typeflag: tar.TypeLink, Name: "logs/b", Linkname: "logs/../../outside"}, {Typeflag: tar.TypeReg, Name: "logs/b", Size: 3}},
	} {
		to := filepath.Join(dir, name)
		if err := os.Mkdir(to, 0o700); err != nil {
			t.Fatal(err)
		}
		err := docker.Extract(entries(t, headers...), to, 1000)
		if text, failed := os.ReadFile(outside); failed != nil || string(text) != "kept" {
			t.Errorf("%s: outside is %q, %v; Extract returned %v", name, text, failed, err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 6 {
		t.Errorf("%v, %v", left, err)
	}
	if err := docker.Extract(entries(t, tar.Header{Typeflag: tar.TypeReg, Name: "big", Size: 1001}), t.TempDir(), 1000); !errors.Is(err, docker.ErrTooLarge) {
		t.Errorf("too large: %v", err)
	}
	to := t.TempDir()
	if err := docker.Extract(entries(t, tar.Header{Typeflag: tar.TypeDir, Name: "logs/", Mode: 0}, tar.Header{Typeflag: tar.TypeReg, Name: "logs/f", Size: 3, Mode: 0o4000}), to, 1000); err != nil {
		t.Error(err)
	}
	info, err := os.Stat(filepath.Join(to, docker.Extracted, "f"))
	if err != nil || info.Size() != 3 || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

// Why a program could not be started is told, also if who reads its output does not take that.
func TestRunThatCannotStart(t *testing.T) {
	const why = "OCI runtime exec failed: no such file"
	c, err := docker.OpenAt(t.Context(), docker.Endpoint{Host: answers(t, map[string]string{
		"/version": works, "/v1.41/containers/c/exec": `{"Id":"e"}`,
		"/v1.41/exec/e/start": string([]byte{1, 0, 0, 0, 0, 0, 0, byte(len(why))}) + why,
		"/v1.41/exec/e/json":  `{"Running":false,"ExitCode":126,"Pid":0}`})})
	if err != nil {
		t.Fatal(err)
	}
	_, closed := io.Pipe()
	_ = closed.Close()
	_, err = c.Run(t.Context(), "c", docker.Exec{Cmd: []string{"/x"}}, docker.Streams{Out: closed, Err: io.Discard})
	if err == nil || err.Error() != "cannot start /x: "+why {
		t.Error(err)
	}
}
