package image

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/distribution/reference"
)

// storage reads a folder of github.com/containers/storage with its overlay driver, which podman and
// buildah share. Its layers are in the form that an overlay wants.
type storage struct {
	dir string
	// also are storages whose images can be seen in this one.
	also []string
}

type storedImage struct {
	ID    string   `json:"id"`
	Names []string `json:"names"`
	Layer string   `json:"layer"`
	// Created is when it was built.
	Created time.Time `json:"created"`
	// dir is the storage that has the image.
	dir string
}

type storedLayer struct {
	ID     string `json:"id"`
	Parent string `json:"parent"`
	DiffID string `json:"diff-digest"`
}

// list returns the images, those of this storage first.
func (s storage) list() (all []storedImage, err error) {
	for _, dir := range append([]string{s.dir}, s.also...) {
		var found []storedImage
		if err := readJSON(filepath.Join(dir, "overlay-images", "images.json"), &found); err != nil {
			return nil, err
		}
		for i := range found {
			found[i].dir = dir
		}
		all = append(all, found...)
	}
	return all, nil
}

// find returns the id of the image with a name, empty if there is none.
func (s storage) find(name string) (string, error) {
	images, err := s.list()
	if err != nil {
		return "", err
	}
	for _, want := range fullNames(name) {
		for _, i := range images {
			if slices.Contains(i.Names, want) {
				return i.ID, nil
			}
		}
	}
	return "", nil
}

// fullNames are the names for which a name can stand, in the order in which podman tries them.
func fullNames(name string) []string {
	ref, err := reference.ParseDockerRef(name)
	if err != nil {
		return nil
	}
	full := ref.String()
	if reference.Domain(ref) != "docker.io" || len(name) > 10 && name[:10] == "docker.io/" {
		return []string{full}
	}
	local, err := reference.ParseDockerRef("localhost/" + name)
	if err != nil {
		return []string{full}
	}
	return []string{local.String(), full}
}

// content is the configuration of an image and its layers, the lowest first.
func (s storage) content(id string) (config []byte, layers []layer, err error) {
	images, err := s.list()
	if err != nil {
		return nil, nil, err
	}
	at := slices.IndexFunc(images, func(i storedImage) bool { return i.ID == id })
	if at < 0 {
		return nil, nil, fmt.Errorf("%s has no image %s", s.dir, id)
	}
	file := "=" + base64.StdEncoding.EncodeToString([]byte("sha256:"+id))
	config, err = os.ReadFile(filepath.Join(images[at].dir, "overlay-images", id, file))
	if err != nil {
		return nil, nil, err
	}
	type place struct {
		storedLayer
		dir string
	}
	known := map[string]place{}
	for _, dir := range append(slices.Clone(s.also), s.dir) {
		var found []storedLayer
		if err := readJSON(filepath.Join(dir, "overlay-layers", "layers.json"), &found); err != nil {
			return nil, nil, err
		}
		for _, l := range found {
			known[l.ID] = place{l, dir}
		}
	}
	for next := images[at].Layer; next != ""; {
		l, ok := known[next]
		if !ok {
			return nil, nil, fmt.Errorf("%s has no layer %s", s.dir, next)
		}
		layers = append(layers, layer{l.DiffID, filepath.Join(l.dir, "overlay", l.ID, "diff")})
		next = l.Parent
		delete(known, l.ID) // so that a circle ends
	}
	slices.Reverse(layers)
	return config, layers, nil
}

// readJSON decodes a file. If the file is missing, the value stays as it is.
func readJSON(file string, into any) error {
	data, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}
