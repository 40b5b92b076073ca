// Package checkout says which commit of git a folder has, and whether its files differ from it.
package checkout

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Commits caches the commits of folders: a service plans many runs of one folder, and asking git
// costs more than all the rest of that. The zero value is ready. Its methods may be called from
// several goroutines.
type Commits struct {
	mu    sync.Mutex
	known map[string]checkout
	asked map[string]changed
}

// changed records whether files of a folder differed from the commit at some time; nil if git could
// not say.
type changed struct {
	dirty *bool
	at    time.Time
}

// gitPatience is how long git may take to say whether files have changed. It is asked about a
// folder at most once in gitFresh.
const (
	gitPatience = 5 * time.Second
	gitFresh    = time.Second
)

// checkout is the cached state of a folder.
type checkout struct {
	commit string
	// state is the state of the repository then: git appends to its log whenever HEAD moves.
	state repository
}

// repository reveals that HEAD has moved, by the log of HEAD.
type repository struct {
	log  string
	size int64
	at   time.Time
}

// Of returns the commit that is checked out in a folder; empty if the folder is in no repository,
// or there is no git.
func (c *Commits) Of(ctx context.Context, dir string) string {
	gitDir := findGit(dir)
	if gitDir == "" {
		return ""
	}
	now := repository{log: filepath.Join(gitDir, "logs", "HEAD")}
	info, err := os.Stat(now.log)
	if err == nil {
		now.size, now.at = info.Size(), info.ModTime()
		c.mu.Lock()
		found, ok := c.known[dir]
		c.mu.Unlock()
		if ok && found.state == now {
			return found.commit
		}
	}
	out, gitErr := exec.CommandContext(ctx, "git", "-C", dir, "rev-parse", "--verify", "HEAD").Output()
	if gitErr != nil {
		return ""
	}
	commit := strings.TrimSpace(string(out))
	if err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.known == nil {
			c.known = map[string]checkout{}
		}
		c.known[dir] = checkout{commit, now}
	}
	return commit
}

// Dirty reports whether files of a folder differ from the commit that is checked out, as git
// describe --dirty does: files that git does not know are ignored. It is nil if git cannot say.
func (c *Commits) Dirty(ctx context.Context, dir string) *bool {
	c.mu.Lock()
	found, ok := c.asked[dir]
	c.mu.Unlock()
	if ok && time.Since(found.at) < gitFresh {
		return found.dirty
	}
	asking, cancel := context.WithTimeout(ctx, gitPatience)
	defer cancel()
	now := changed{at: time.Now()}
	// A monitor of the file system would be a program that the repository names.
	out, err := exec.CommandContext(asking, "git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-C", dir,
		"status", "--porcelain", "--untracked-files=no", "--", ".").Output()
	if err == nil {
		now.dirty = new(len(out) > 0)
	}
	if ctx.Err() == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.asked == nil {
			c.asked = map[string]changed{}
		}
		c.asked[dir] = now
	}
	return now.dirty
}

// findGit returns the folder that git keeps for the checkout around a folder; empty if there is
// none.
func findGit(dir string) string {
	for up := dir; ; up = filepath.Dir(up) {
		path := filepath.Join(up, ".git")
		if info, err := os.Stat(path); err == nil {
			if info.IsDir() {
				return path
			}
			data, err := os.ReadFile(path) // the file of a further worktree
			target, ok := strings.CutPrefix(strings.TrimSpace(string(data)), "gitdir: ")
			if err != nil || !ok {
				return path
			}
			if !filepath.IsAbs(target) {
				target = filepath.Join(up, target)
			}
			return target
		}
		if up == filepath.Dir(up) {
			return ""
		}
	}
}
