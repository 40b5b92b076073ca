package image

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/evalrun/evalrun/internal/cgroup"
	"github.com/evalrun/evalrun/internal/durable"
)

// clean removes what a process has left that was killed while it made an image. The caller has the
// lock, so nothing of it is in use.
func (d directory) clean() error {
	return errors.Join(removeAllIn(d.path("tmp")), d.cleanStorage(), removeControlGroups(controlGroup(d.path("storage"))))
}

// cleanStorage removes the containers of builds, and the folders of layers that belong to no image
// yet. If a storage was left in an unclear state, it is removed as a whole, because it is a cache.
func (d directory) cleanStorage() error {
	s := storage{dir: d.path("storage", "root")}
	containers, err := s.containers()
	var layers []storedLayer
	err = errors.Join(err, readJSON(filepath.Join(s.dir, "overlay-layers", "layers.json"), &layers))
	if err != nil || len(containers) > 0 {
		return d.wipeStorage()
	}
	known := map[string]bool{"l": true}
	for _, l := range layers {
		known[l.ID] = true
	}
	entries, err := os.ReadDir(filepath.Join(s.dir, "overlay"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if e.IsDir() && !known[e.Name()] {
			err = errors.Join(err, os.RemoveAll(filepath.Join(s.dir, "overlay", e.Name())))
		}
	}
	return err
}

// removeControlGroups removes a control group of every hierarchy, with those below it. The
// processes in them have been killed, but the kernel may still be ending them.
func removeControlGroups(name string) error {
	groups, err := filepath.Glob("/sys/fs/cgroup/*/" + name) // one hierarchy for each controller
	groups = append(groups, "/sys/fs/cgroup/"+name)          // or one for all
	for _, group := range groups {
		below, failed := os.ReadDir(group)
		if errors.Is(failed, os.ErrNotExist) {
			continue
		}
		err = errors.Join(err, failed)
		for _, e := range below {
			if e.IsDir() {
				err = errors.Join(err, cgroup.RemoveFolder(filepath.Join(group, e.Name())))
			}
		}
		err = errors.Join(err, cgroup.RemoveFolder(group))
	}
	return err
}

// wipeStorage removes the storage of the builders.
func (d directory) wipeStorage() error {
	return errors.Join(os.RemoveAll(d.path("storage")), os.RemoveAll(runRoot(d.path("storage"))))
}

// containers are the ids of the containers of current and past builds.
func (s storage) containers() (ids []string, err error) {
	var all []struct {
		ID string `json:"id"`
	}
	err = readJSON(filepath.Join(s.dir, "overlay-containers", "containers.json"), &all)
	for _, c := range all {
		ids = append(ids, c.ID)
	}
	return ids, err
}

// removeAllIn empties a folder.
func removeAllIn(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	if len(entries) > 0 {
		err = errors.Join(err, durable.Sync(dir))
	}
	return err
}
