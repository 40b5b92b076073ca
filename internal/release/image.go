package main

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// imageUser is the user of the image, who is nobody else on a machine.
const imageUser = 65532

// sticky and ofUser are bits of a file's mode: anybody may write into the folder; it is the image's user's.
const (
	sticky = fs.ModeSticky
	ofUser = fs.ModeSetuid // no file of a package is setuid
)

// The media types are those of the OCI image format, which is written to the letter of
// https://github.com/opencontainers/image-spec/blob/v1.1.1/image-layout.md.
const (
	mediaIndex    = "application/vnd.oci.image.index.v1+json"
	mediaManifest = "application/vnd.oci.image.manifest.v1+json"
	mediaConfig   = "application/vnd.oci.image.config.v1+json"
	mediaLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Platform    map[string]string `json:"platform,omitempty"`
}

type index struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Manifests     []descriptor `json:"manifests"`
}

// blobs are the contents of an image by their digests.
type blobs struct{ files []file }

func (b *blobs) add(mediaType string, data []byte) descriptor {
	b.files = append(b.files, file{"blobs/sha256/" + sum(data), 0o644, data})
	return descriptor{MediaType: mediaType, Digest: "sha256:" + sum(data), Size: len(data)}
}

func (b *blobs) addJSON(mediaType string, value any) (descriptor, error) {
	data, err := json.Marshal(value)
	return b.add(mediaType, data), err
}

// image is an OCI archive with the programs for Linux. It has no shell and no C library; /data, its
// user's, is where the store is.
func (r *release) image(targets []target, share []file) ([]byte, error) {
	all := &blobs{files: []file{{"blobs/", 0o755, nil}, {"blobs/sha256/", 0o755, nil}}}
	platforms := index{SchemaVersion: 2, MediaType: mediaIndex}
	for _, t := range targets {
		if t.os != "linux" {
			continue
		}
		manifest, err := r.imageFor(t, all, share)
		if err != nil {
			return nil, err
		}
		manifest.Platform = map[string]string{"os": t.os, "architecture": t.arch}
		platforms.Manifests = append(platforms.Manifests, manifest)
	}
	inner, err := all.addJSON(mediaIndex, platforms)
	if err != nil {
		return nil, err
	}
	inner.Annotations = map[string]string{"org.opencontainers.image.ref.name": "evalrun:" + r.semver()}
	outer, err := json.Marshal(index{2, mediaIndex, []descriptor{inner}})
	if err != nil {
		return nil, err
	}
	files := append(all.files, file{"index.json", 0o644, outer},
		file{"oci-layout", 0o644, []byte(`{"imageLayoutVersion":"1.0.0"}`)})
	var archive bytes.Buffer
	err = writeTar(&archive, files, r.date)
	return archive.Bytes(), err
}

// imageFor adds the image for one system, and returns its manifest.
func (r *release) imageFor(t target, all *blobs, share []file) (descriptor, error) {
	program, err := os.ReadFile(filepath.Join(r.dist, t.String()))
	if err != nil {
		return descriptor{}, err
	}
	user := strconv.Itoa(imageUser)
	files := []file{
		{"data/", 0o750 | ofUser, nil},
		{"etc/", 0o755, nil},
		{"etc/group", 0o644, []byte("root:x:0:\nevalrun:x:" + user + ":\n")},
		{"etc/passwd", 0o644, []byte("root:x:0:0:root:/:/\nevalrun:x:" + user + ":" + user + "::/data:/\n")},
		{"tmp/", 0o777 | sticky, nil},
		{"usr/", 0o755, nil},
		{"usr/bin/", 0o755, nil},
		{"usr/bin/evalrun", 0o755, program},
	}
	files = append(files, inside(share, "usr/share/evalrun")...)
	var layer bytes.Buffer
	if err := writeTar(&layer, files, r.date); err != nil {
		return descriptor{}, err
	}
	zipped, err := tarGzip(files, r.date)
	if err != nil {
		return descriptor{}, err
	}
	created := r.date.UTC().Format("2006-01-02T15:04:05Z")
	config, err := all.addJSON(mediaConfig, map[string]any{
		"created": created, "os": t.os, "architecture": t.arch,
		"config": map[string]any{
			"User": user + ":" + user, "WorkingDir": "/data", "Entrypoint": []string{"/usr/bin/evalrun"}, "Cmd": []string{"--help"},
			"Env":     []string{"PATH=/usr/bin", "HOME=/data", "EVALRUN_STORE=/data/.evalrun"},
			"Volumes": map[string]any{"/data": struct{}{}},
			"Labels": map[string]string{
				"org.opencontainers.image.title": "evalrun", "org.opencontainers.image.description": summary,
				"org.opencontainers.image.source": homepage, "org.opencontainers.image.version": r.version,
				"org.opencontainers.image.revision": r.commit,
			},
		},
		"rootfs":  map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + sum(layer.Bytes())}},
		"history": []any{map[string]any{"created": created, "created_by": ".ci/dist"}},
	})
	if err != nil {
		return descriptor{}, err
	}
	return all.addJSON(mediaManifest, map[string]any{
		"schemaVersion": 2, "mediaType": mediaManifest, "config": config, "layers": []descriptor{all.add(mediaLayer, zipped)},
	})
}
