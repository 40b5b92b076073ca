// Package taskcache keeps folders of git repositories in a folder of the user, so that published
// tasks are fetched once and a second run needs no network. It knows git, addresses and locks. It
// must not know runs and rollouts; of tasks it knows only the digest by which a folder is checked
// each time.
package taskcache

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"

	"github.com/evalrun/evalrun/internal/durable"
	"github.com/evalrun/evalrun/internal/failpoint"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/tasks"
)

// Cache is the folder in which fetched folders are kept.
type Cache struct {
	dir string
	// say is called with a line for each step that takes long.
	say func(line string)
}

// Dir returns the default folder of tasks: $EVALRUN_TASKS, else evalrun/tasks in the user's cache
// folder.
func Dir() (string, error) {
	if dir := os.Getenv("EVALRUN_TASKS"); dir != "" {
		return filepath.Abs(dir)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("there is no folder for the tasks of git repositories: %w; set EVALRUN_TASKS", err)
	}
	return filepath.Join(cache, "evalrun", "tasks"), nil
}

// Open opens a cache. It is made with the first folder. say, which may be nil, is called with each
// step that takes long.
func Open(dir string, say func(line string)) *Cache {
	if say == nil {
		say = func(string) {}
	}
	return &Cache{dir, say}
}

// Fetched is a folder in the cache.
type Fetched struct {
	// Folder has the commit's full id.
	Folder
	// Dir is its path on this machine.
	Dir string
}

// record is the data that is kept beside a folder. A folder counts only if it has the record's
// digest, so that no incomplete or changed folder is used.
type record struct {
	Source string `json:"source"`
	Digest string `json:"digest"`
}

// Get returns the folders in their order, and fetches those that are missing. It runs git only for
// these, and for commits that are not full ids.
func (c *Cache) Get(ctx context.Context, folders []Folder) ([]Fetched, error) {
	out := make([]Fetched, len(folders))
	missing := map[string][]int{}
	for i, f := range folders {
		out[i].Folder = f
		if !f.Fixed() || !c.there(&out[i]) {
			missing[f.URL] = append(missing[f.URL], i)
		}
	}
	for _, f := range folders {
		wanted := missing[f.URL]
		delete(missing, f.URL)
		if len(wanted) == 0 {
			continue
		}
		some := make([]*Fetched, len(wanted))
		for n, i := range wanted {
			some[n] = &out[i]
		}
		if err := c.fetch(ctx, f.URL, some); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// there finds a folder of a known commit.
func (c *Cache) there(f *Fetched) bool {
	f.Dir = filepath.Join(c.folder(f.Folder), f.name())
	var r record
	data, err := input.ReadFile(c.folder(f.Folder)+".json", 1<<16)
	if err != nil || json.Unmarshal(data, &r) != nil || r.Source != f.String() {
		return false
	}
	digest, err := tasks.Digest(f.Dir)
	return err == nil && digest == r.Digest
}

// folder returns the directory that holds a folder and nothing else, so that all of it can be
// hidden from agents.
func (c *Cache) folder(f Folder) string { return filepath.Join(c.dir, "folders", key(f.String())) }

func key(text string) string {
	sum := sha256.Sum256([]byte(text))
	return fmt.Sprintf("%x", sum[:12])
}

// fetch fetches folders of one repository, while no other process does.
func (c *Cache) fetch(ctx context.Context, address string, folders []*Fetched) (err error) {
	for _, dir := range []string{"folders", "locks", "tmp"} {
		if err := os.MkdirAll(filepath.Join(c.dir, dir), 0o700); err != nil {
			return err
		}
	}
	lock, err := durable.WaitLock(ctx, filepath.Join(c.dir, "locks", key(address)), 0o600, func() {
		c.say("waiting for another evalrun, which fetches from " + address)
	})
	if err != nil {
		return err
	}
	defer lock.Close()
	r, err := c.clear(address)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.dir)) }()
	if err := r.resolve(ctx, folders); err != nil {
		return err
	}
	byCommit := map[string][]*Fetched{}
	for _, f := range folders {
		if !c.there(f) { // another process may have fetched it meanwhile
			byCommit[f.Commit] = append(byCommit[f.Commit], f)
		}
	}
	for commit, some := range byCommit {
		c.say(fmt.Sprintf("fetching %s of %s at %.12s", counted(some), address, commit))
		if err := r.fetch(ctx, commit, some); err != nil {
			return err
		}
		for _, f := range some {
			if err := c.keep(ctx, r, f); err != nil {
				return fmt.Errorf("%s: %w", f.Folder, err)
			}
		}
	}
	return nil
}

func counted(folders []*Fetched) string {
	if len(folders) == 1 {
		return folders[0].Path
	}
	return fmt.Sprintf("%d folders", len(folders))
}

// clear makes an empty repository to fetch into. It removes the leftovers of killed processes;
// nobody else uses them, because the lock is held.
func (c *Cache) clear(address string) (*repository, error) {
	tmp := filepath.Join(c.dir, "tmp")
	entries, err := os.ReadDir(tmp)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), key(address)+"-") {
			err = errors.Join(err, os.RemoveAll(filepath.Join(tmp, e.Name())))
		}
	}
	if err != nil {
		return nil, err
	}
	r := &repository{url: address, dir: filepath.Join(tmp, key(address)+"-"+uuid.NewString()[:8])}
	return r, os.Mkdir(r.dir, 0o700)
}

// keep writes out a folder that was fetched, and records it when it is whole.
func (c *Cache) keep(ctx context.Context, r *repository, f *Fetched) error {
	staged := filepath.Join(r.dir, "folder")
	if err := os.RemoveAll(staged); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(staged, f.name()), 0o700); err != nil {
		return err
	}
	if err := r.write(ctx, f, filepath.Join(staged, f.name())); err != nil {
		return err
	}
	digest, err := tasks.Digest(filepath.Join(staged, f.name()))
	if err != nil {
		return err
	}
	failpoint.Hit("taskcache.written")
	to := c.folder(f.Folder)
	if err := errors.Join(os.RemoveAll(to), os.RemoveAll(to+".json")); err != nil {
		return err
	}
	if err := os.Rename(staged, to); err != nil {
		return err
	}
	failpoint.Hit("taskcache.moved")
	data, err := json.Marshal(record{f.String(), digest})
	if err != nil {
		return err
	}
	return durable.WriteFile(to+".json", 0o600, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}
