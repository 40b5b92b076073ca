package image

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/durable"
)

// Entry is an image in the list of images.
type Entry struct {
	Digest string `json:"digest"`
	// Of are the Dockerfiles and names for which the image was made.
	Of []string `json:"of"`
	// Made and Used are the times when the image was made and when it was last opened.
	Made time.Time `json:"made"`
	Used time.Time `json:"used"`
	// Bytes is the size of its layers on the disk. OwnBytes is what would be free without it.
	Bytes    int64 `json:"bytes"`
	OwnBytes int64 `json:"ownBytes"`
	// InUse says that a process uses it now. Kept are the folders of runs and rollouts that need it.
	InUse bool     `json:"inUse"`
	Kept  []string `json:"kept"`
}

// List returns all images, the last used first.
func (im *Images) List() ([]Entry, error) {
	records, err := im.dir.records()
	if err != nil {
		return nil, err
	}
	users := map[string]int{}
	for _, r := range records {
		for _, folder := range r.Layers {
			users[folder]++
		}
	}
	pins, err := im.dir.pins()
	if err != nil {
		return nil, err
	}
	keys, err := im.dir.requests()
	if err != nil {
		return nil, err
	}
	size := map[string]int64{}
	all := []Entry{}
	for _, r := range records {
		e := Entry{Digest: r.Digest, Of: []string{}, Kept: []string{},
			Made: r.Made, Used: im.dir.used(r.Digest), InUse: im.dir.inUse(r.Digest)}
		for _, folder := range r.Layers {
			if _, known := size[folder]; !known {
				size[folder] = diskUse(im.dir.path("layers", folder), "")
			}
			e.Bytes += size[folder]
			if users[folder] == 1 {
				e.OwnBytes += size[folder]
			}
		}
		for _, m := range keys {
			if m.Digest == r.Digest {
				e.Of = append(e.Of, m.Of)
			}
		}
		for _, p := range pins {
			if p.Digest == r.Digest {
				e.Kept = append(e.Kept, p.Path)
			}
		}
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b Entry) int { return b.Used.Compare(a.Used) })
	return all, nil
}

// CacheBytes is the size of the builders' storages.
func (im *Images) CacheBytes() int64 { return diskUse(im.dir.path("storage"), "merged") }

// pin says that something needs an image for as long as a path exists.
type pin struct {
	// Digest is the name in the case of an image of a service.
	Digest string `json:"digest"`
	Path   string `json:"path"`
}

// Keep protects the image from being collected for as long as a path exists, such as the folder of
// a suspended rollout.
func (i *Image) Keep(path string) error {
	return i.dir.pin(i.Digest, path)
}

func (d directory) pin(digest, path string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	sum := sha256.Sum256([]byte(digest + path))
	return d.write(pin{digest, path}, "pins", fmt.Sprintf("%x.json", sum[:12]))
}

// Collect removes the images that nobody uses and that were not used since a time, with the layers
// and logs that belong to no other image, and everything half-made. It returns the images, and how
// many bytes that frees. With dryRun it removes nothing. The cache of the builders goes with the
// last image.
func (im *Images) Collect(ctx context.Context, unusedSince time.Time,
	dryRun bool, waiting func()) (removed []Entry, bytes int64, err error) {
	lock, err := im.dir.lock(ctx, waiting)
	if err != nil {
		return nil, 0, err
	}
	defer lock.Close() // the lock ends with it, whatever it says
	records, err := im.dir.records()
	if err != nil {
		return nil, 0, err
	}
	entries, err := im.List()
	if err != nil {
		return nil, 0, err
	}
	before := diskUse(string(im.dir), "merged")
	removed = []Entry{}
	for _, e := range entries {
		if len(e.Kept) == 0 && !e.Used.After(unusedSince) && im.dir.forget(e.Digest, dryRun) {
			removed = append(removed, e)
		}
	}
	left := slices.DeleteFunc(slices.Clone(records), func(r record) bool {
		return slices.ContainsFunc(removed, func(e Entry) bool { return e.Digest == r.Digest })
	})
	if dryRun {
		return removed, im.dir.layerBytes(records) - im.dir.layerBytes(left), nil
	}
	err = errors.Join(im.dir.clean(), im.dir.sweep(left))
	if len(left) == 0 {
		err = errors.Join(err, im.dir.wipeStorage())
	}
	return removed, before - diskUse(string(im.dir), "merged"), err
}

func (d directory) layerBytes(records []record) (sum int64) {
	seen := map[string]bool{}
	for _, r := range records {
		for _, folder := range r.Layers {
			if !seen[folder] {
				seen[folder] = true
				sum += diskUse(d.path("layers", folder), "")
			}
		}
	}
	return sum
}

// forget removes the record of an image, unless somebody has it open. Later callers find that there
// is no such image.
func (d directory) forget(digest string, dryRun bool) bool {
	use, err := durable.TryLock(d.path("locks", id(digest)), 0o600)
	if err != nil {
		return false
	}
	defer use.Close() // the lock ends with it, whatever it says
	return dryRun || os.Remove(d.path("images", id(digest)+".json")) == nil
}

// logsOfFailures is how long the log of a failed build is kept.
const logsOfFailures = 7 * 24 * time.Hour

// sweep removes the layers, requests and logs that belong to none of the remaining images.
func (d directory) sweep(left []record) error {
	layers, images := map[string]bool{}, map[string]bool{}
	for _, r := range left {
		images[r.Digest] = true
		for _, folder := range r.Layers {
			layers[folder] = true
		}
	}
	requests, err := d.requests()
	if err != nil {
		return err
	}
	return errors.Join(
		d.removeExcept("layers", func(name string) bool { return layers[name] }),
		d.removeExcept("keys", func(name string) bool { return images[requests[name].Digest] }),
		d.removeExcept("logs", func(name string) bool {
			m, answered := requests[strings.TrimSuffix(name, ".log")+".json"]
			info, err := os.Stat(d.path("logs", name))
			return images[m.Digest] || !answered && err == nil && time.Since(info.ModTime()) < logsOfFailures
		}))
}

func (d directory) removeExcept(sub string, keep func(name string) bool) error {
	entries, err := os.ReadDir(d.path(sub))
	for _, e := range entries {
		if !keep(e.Name()) {
			err = errors.Join(err, os.RemoveAll(d.path(sub, e.Name())))
		}
	}
	return err
}
