package testenv

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// Registry is a registry of images on loopback. It follows the OCI distribution specification as
// far as a pull needs it.
type Registry struct {
	// Host is its host and port, with which the names of its images begin.
	Host   string
	server *httptest.Server
	// documents are manifests by their names and digests, and blobs by their digests.
	documents sync.Map
}

// NewRegistry starts a registry without images, until Close.
func NewRegistry() *Registry {
	r := &Registry{}
	r.server = httptest.NewServer(r)
	r.Host = strings.TrimPrefix(r.server.URL, "http://")
	return r
}

// Close ends the registry.
func (r *Registry) Close() { r.server.Close() }

// Clear removes all images.
func (r *Registry) Clear() { r.documents.Clear() }

// Trust tells the programs that run with this HOME that the registry speaks plain HTTP.
func (r *Registry) Trust(home string) error {
	config := filepath.Join(home, ".config", "containers", "registries.conf")
	return errors.Join(os.MkdirAll(filepath.Dir(config), 0o755),
		os.WriteFile(config, fmt.Appendf(nil, "[[registry]]\nlocation = %q\ninsecure = true\n", r.Host), 0o644))
}

// Blob adds a blob and returns its digest.
func (r *Registry) Blob(data []byte) (digest string) {
	digest = fmt.Sprintf("sha256:%x", sha256.Sum256(data))
	r.documents.Store(digest, data)
	return digest
}

// Tag gives an image a name that ends with tag, and returns the name.
func (r *Registry) Tag(tag string, manifest []byte) (name string) {
	r.Blob(manifest)
	r.documents.Store(tag, manifest)
	return r.Host + "/some/image:" + tag
}

// Add adds an image from a folder that podman save --format docker-dir has written: its manifest,
// and blobs that have their digests as names.
func (r *Registry) Add(tag, dir string) (name string, err error) {
	entries, err := os.ReadDir(dir)
	var manifest []byte
	for _, e := range entries {
		data, failed := os.ReadFile(filepath.Join(dir, e.Name()))
		err = errors.Join(err, failed)
		if r.Blob(data); e.Name() == "manifest.json" {
			manifest = data
		}
	}
	return r.Tag(tag, manifest), err
}

// ServeHTTP answers the requests of a pull.
func (r *Registry) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	parts := strings.Split(q.URL.Path, "/")
	document, ok := r.documents.Load(parts[len(parts)-1])
	data, _ := document.([]byte)
	switch {
	case q.URL.Path == "/v2/":
	case !ok:
		w.WriteHeader(http.StatusNotFound)
	default:
		if parts[len(parts)-2] == "manifests" {
			var manifest struct{ MediaType string }
			_ = json.Unmarshal(data, &manifest) // without a type the client refuses it
			w.Header().Set("Content-Type", manifest.MediaType)
			w.Header().Set("Docker-Content-Digest", fmt.Sprintf("sha256:%x", sha256.Sum256(data)))
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(data)))
		_, _ = w.Write(data) // the client may have gone
	}
}
