package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestVersions(t *testing.T) {
	for _, test := range []struct{ described, semver, pep440 string }{
		{"v1.2.3", "1.2.3", "1.2.3"},
		{"v1.2.3-rc.1", "1.2.3-rc.1", "1.2.3rc1"},
		{"v1.2.3-beta.2-4-gabc123", "1.2.3-beta.2.4.gabc123", "1.2.3b2.post4+gabc123"},
		{"v1.2.3-4-gabc123-dirty", "1.2.3-4.gabc123.dirty", "1.2.3.post4+gabc123.dirty"},
		{"v1.2.3-dirty", "1.2.3-dirty", "1.2.3+dirty"},
		{"0a1b2c3d", "0.0.0-0.g0a1b2c3d", "0.0.0.post0+g0a1b2c3d"},
		{"0a1b2c3d-dirty", "0.0.0-0.g0a1b2c3d.dirty", "0.0.0.post0+g0a1b2c3d.dirty"},
	} {
		r := release{version: test.described}
		if r.semver() != test.semver || r.pep440() != test.pep440 {
			t.Errorf("%s is %s and %s, want %s and %s", test.described, r.semver(), r.pep440(), test.semver, test.pep440)
		}
	}
}

// Given programs for two systems, when everything is made twice, then the bytes are the same, every
// archive can be read to its end, and has the program, which can be executed.
func TestPackages(t *testing.T) {
	first, second := made(t), made(t)
	want := map[string]string{
		"evalrun_linux_amd64.tar.gz":                   "evalrun_linux_amd64/evalrun",
		"evalrun_darwin_arm64.tar.gz":                  "evalrun_darwin_arm64/evalrun",
		"evalrun-linux-x64-1.2.3.tgz":                  "package/bin/evalrun",
		"evalrun-darwin-arm64-1.2.3.tgz":               "package/bin/evalrun",
		"evalrun-1.2.3.tgz":                            "package/launcher.js",
		"evalrun-1.2.3-py3-none-macosx_12_0_arm64.whl": "evalrun-1.2.3.data/scripts/evalrun",
		"evalrun-1.2.3-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.musllinux_1_1_x86_64.whl": "evalrun-1.2.3.data/scripts/evalrun",
	}
	names, err := filepath.Glob(filepath.Join(first, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		one, other := read(t, name), read(t, filepath.Join(second, filepath.Base(name)))
		if !bytes.Equal(one, bytes.ReplaceAll(other, []byte(second), []byte(first))) {
			t.Errorf("%s differs when it is made again", filepath.Base(name))
		}
	}
	for name, program := range want {
		var files map[string]fs.FileMode
		if strings.HasSuffix(name, ".whl") {
			files = inWheel(t, read(t, filepath.Join(first, name)))
		} else {
			files = inArchive(t, unzipped(t, read(t, filepath.Join(first, name))))
		}
		if inside := carries(files, "evalrun-inside_linux_arm64"); inside != (name != "evalrun-1.2.3.tgz") {
			t.Errorf("%s has %v, want the program for containers", name, files)
		}
		if files[program] != 0o755 {
			t.Errorf("%s has %v, want the program as %s", name, files, program)
		}
		if name == "evalrun-1.2.3.tgz" && (files["package/evalrun.mjs"] != 0o644 || files["package/evalrun.d.mts"] != 0o644) {
			t.Errorf("%s has %v, want the module for Node", name, files)
		}
		if strings.HasSuffix(name, ".whl") && (files["evalrun/__init__.py"] != 0o644 || len(files) != 7) {
			t.Errorf("%s has %v, want the Python package without what Python has compiled", name, files)
		}
	}
	if formula := string(read(t, filepath.Join(first, "evalrun.rb"))); !strings.Contains(formula, sum(read(t, filepath.Join(first, "evalrun_darwin_arm64.tar.gz")))) {
		t.Errorf("the formula does not have the sum of the archive for macOS:\n%s", formula)
	}
}

// The image has what its digests say, from the index to the files of its layer.
func TestImage(t *testing.T) {
	dir := made(t)
	blobs := map[string][]byte{}
	archive := tar.NewReader(bytes.NewReader(read(t, filepath.Join(dir, "evalrun_image.tar"))))
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		blobs[h.Name] = data
		if name, ok := strings.CutPrefix(h.Name, "blobs/sha256/"); ok && name != "" && name != sum(data) {
			t.Errorf("%s has the digest %s", h.Name, sum(data))
		}
	}
	blob := func(d descriptor) []byte {
		data := blobs["blobs/sha256/"+strings.TrimPrefix(d.Digest, "sha256:")]
		if len(data) == 0 || len(data) != d.Size {
			t.Fatalf("%+v has %d bytes", d, len(data))
		}
		return data
	}
	decode := func(data []byte, into any) {
		if err := json.Unmarshal(data, into); err != nil {
			t.Fatalf("%s: %v", data, err)
		}
	}
	var outer, platforms index
	decode(blobs["index.json"], &outer)
	decode(blob(outer.Manifests[0]), &platforms)
	if len(platforms.Manifests) != 1 || platforms.Manifests[0].Platform["architecture"] != "amd64" {
		t.Fatalf("the platforms are %+v", platforms)
	}
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	decode(blob(platforms.Manifests[0]), &manifest)
	var config struct {
		Config struct{ User string }
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	decode(blob(manifest.Config), &config)
	layer := unzipped(t, blob(manifest.Layers[0]))
	if config.Config.User != "65532:65532" || config.RootFS.DiffIDs[0] != "sha256:"+sum(layer) {
		t.Errorf("the configuration is %+v, the layer's digest %s", config, sum(layer))
	}
	if files := inArchive(t, layer); files["usr/bin/evalrun"] != 0o755 || files["tmp/"] != 0o777|fs.ModeSticky {
		t.Errorf("the layer has %v", files)
	}
}

// Every file of dist is a subject of the statement, with its sum.
func TestProvenance(t *testing.T) {
	dir := made(t)
	r := release{version: "v1.2.3", commit: "abc", dist: dir}
	if err := r.provenance(); err != nil {
		t.Fatal(err)
	}
	var statement struct {
		Subject []struct {
			Name   string
			Digest map[string]string
		}
	}
	if err := json.Unmarshal(read(t, filepath.Join(dir, "evalrun.intoto.json")), &statement); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(statement.Subject) != len(entries)-1 {
		t.Errorf("%d files have %d subjects", len(entries)-1, len(statement.Subject))
	}
	for _, s := range statement.Subject {
		if s.Digest["sha256"] != sum(read(t, filepath.Join(dir, s.Name))) {
			t.Errorf("%s has another sum than %v", s.Name, s.Digest)
		}
	}
}

// made makes everything of two programs that are none.
func made(t *testing.T) (dist string) {
	t.Helper()
	dist, share, python := t.TempDir(), t.TempDir(), t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(python, "__pycache__"), 0o755), os.Mkdir(filepath.Join(share, "inside"), 0o755)); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		filepath.Join(dist, "evalrun_linux_amd64"):                "a program for Linux",
		filepath.Join(dist, "evalrun_darwin_arm64"):               "a program for macOS",
		filepath.Join(dist, "evalrun_linux_amd64.cdx.json"):       "{}",
		filepath.Join(share, "evalrun.1"):                         ".TH EVALRUN 1",
		filepath.Join(share, "inside/evalrun-inside_linux_arm64"): "a program for containers",
		filepath.Join(python, "__init__.py"):                      "",
		filepath.Join(python, "__pycache__/__init__.pyc"):         "compiled",
	} {
		if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	r := release{version: "v1.2.3", commit: "abc", date: time.Unix(1767225600, 0), dist: dist, share: share, python: python}
	if err := r.packages(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dist, "evalrun_linux_amd64.nfpm.yaml")); err != nil { // it has the folder's path
		t.Fatal(err)
	}
	return dist
}

// carries reports whether a program is among files.
func carries(files map[string]fs.FileMode, program string) bool {
	for name, mode := range files {
		if path.Base(name) == program && mode == 0o755 {
			return true
		}
	}
	return false
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func unzipped(t *testing.T, data []byte) []byte {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err == nil {
		data, err = io.ReadAll(z)
	}
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func inArchive(t *testing.T, data []byte) map[string]fs.FileMode {
	t.Helper()
	files := map[string]fs.FileMode{}
	for archive := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = h.FileInfo().Mode() &^ fs.ModeDir
	}
}

// inWheel lists a wheel's files, each of which RECORD names with its sum and size.
func inWheel(t *testing.T, data []byte) map[string]fs.FileMode {
	t.Helper()
	z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	record, err := fs.ReadFile(z, "evalrun-1.2.3.dist-info/RECORD")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]fs.FileMode{}
	for _, f := range z.File {
		files[f.Name] = f.Mode()
		text, err := fs.ReadFile(z, f.Name)
		if err != nil {
			t.Fatal(err)
		}
		s := sha256.Sum256(text)
		line := fmt.Sprintf("%s,sha256=%s,%d\n", f.Name, base64.RawURLEncoding.EncodeToString(s[:]), len(text))
		if !strings.HasSuffix(f.Name, "/RECORD") && !strings.Contains(string(record), line) {
			t.Errorf("RECORD does not have %s", line)
		}
	}
	return files
}
