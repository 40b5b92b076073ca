package image

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/durable"
)

// ServiceImages is the repository of the images that services beside a task were built as. They are
// in podman's usual storage, because podman runs the services.
const ServiceImages = "localhost/evalrun-service"

// KeepService records that an image of a service is used now, and protects it from being collected
// for as long as a path exists. The image need not have been built yet.
func (im *Images) KeepService(name, path string) error {
	if err := errors.Join(im.dir.prepare(),
		durable.WriteFile(im.dir.service(name), 0o600, func(io.Writer) error { return nil })); err != nil {
		return err
	}
	return im.dir.pin(name, path)
}

// service is the file that was written when an image of a service was last used.
func (d directory) service(name string) string {
	return d.path("services", fmt.Sprintf("%x", sha256.Sum256([]byte(name)))[:24])
}

// Services returns the images of services, the last used first. There are none without podman, or
// for an ordinary user.
func (im *Images) Services(ctx context.Context) ([]Entry, error) {
	s, err := usualStorage(ctx)
	if s == nil || err != nil {
		return []Entry{}, err
	}
	images, err := s.list()
	if err != nil {
		return nil, err
	}
	used, err := s.used()
	if err != nil {
		return nil, err
	}
	pins, err := im.dir.pins()
	if err != nil {
		return nil, err
	}
	layers, users, size := map[string][]string{}, map[string]int{}, map[string]int64{}
	for _, i := range images {
		_, of, err := s.content(i.ID)
		if err != nil {
			return nil, err
		}
		for _, l := range of {
			layers[i.ID] = append(layers[i.ID], l.dir)
			users[l.dir]++
		}
	}
	all := []Entry{}
	for _, i := range images {
		of := slices.DeleteFunc(slices.Clone(i.Names),
			func(name string) bool { return !strings.HasPrefix(name, ServiceImages+":") })
		if len(of) == 0 {
			continue
		}
		e := Entry{Digest: "sha256:" + i.ID, Of: of, Kept: []string{},
			Made: i.Created, Used: i.Created, InUse: slices.Contains(used, i.ID)}
		for _, dir := range layers[i.ID] {
			if _, known := size[dir]; !known {
				size[dir] = diskUse(dir, "")
			}
			e.Bytes += size[dir]
			if users[dir] == 1 {
				e.OwnBytes += size[dir]
			}
		}
		for _, name := range of {
			if info, err := os.Stat(im.dir.service(name)); err == nil && info.ModTime().After(e.Used) {
				e.Used = info.ModTime()
			}
			for _, p := range pins {
				if p.Digest == name {
					e.Kept = append(e.Kept, p.Path)
				}
			}
		}
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b Entry) int { return b.Used.Compare(a.Used) })
	return all, nil
}

// CollectServices removes the images of services by the rule of [Images.Collect]. No service may be
// built meanwhile.
func (im *Images) CollectServices(ctx context.Context, unusedSince time.Time,
	dryRun bool) (removed []Entry, bytes int64, err error) {
	entries, err := im.Services(ctx)
	removed = []Entry{}
	for _, e := range entries {
		if e.InUse || len(e.Kept) > 0 || e.Used.After(unusedSince) {
			continue
		}
		if !dryRun {
			if out, failed := exec.CommandContext(ctx, "podman",
				append([]string{"rmi"}, e.Of...)...).CombinedOutput(); failed != nil {
				err = errors.Join(err, fmt.Errorf("remove %s: %w: %s",
					strings.Join(e.Of, ", "), failed, strings.TrimSpace(string(out))))
				continue
			}
			for _, name := range e.Of {
				_ = os.Remove(im.dir.service(name)) // it may not be there
			}
		}
		removed, bytes = append(removed, e), bytes+e.OwnBytes
	}
	return removed, bytes, err
}

// usualStorage is podman's default storage, or nil if there is none.
func usualStorage(ctx context.Context) (*storage, error) {
	program, err := exec.LookPath("podman")
	if err != nil || os.Geteuid() != 0 {
		return nil, nil //nolint:nilerr // then nobody has run services
	}
	out, err := exec.CommandContext(ctx, program, "info", "--format",
		"{{.Store.GraphDriverName}} {{.Store.GraphRoot}}").Output()
	driver, root, ok := strings.Cut(strings.TrimSpace(string(out)), " ")
	if err != nil || !ok {
		return nil, fmt.Errorf("podman info says %q: %w", out, err)
	}
	if driver != "overlay" {
		return nil, nil
	}
	return &storage{dir: root}, nil
}

// used are the ids of the images that have containers.
func (s storage) used() (ids []string, err error) {
	var all []struct {
		Image string `json:"image"`
	}
	err = readJSON(filepath.Join(s.dir, "overlay-containers", "containers.json"), &all)
	for _, c := range all {
		ids = append(ids, c.Image)
	}
	return ids, err
}
