package runner

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// commits remembers what was checked out in folders: a service plans many runs of one folder, and
// to ask git costs more than all the rest of that. The zero value is ready.
type commits struct {
	mu    sync.Mutex
	known map[string]checkout
}

// checkout is what was found in a folder.
type checkout struct {
	commit string
	// state is that of the repository then: git appends to its log whenever HEAD moves.
	state repository
}

// repository is what tells that HEAD has moved: the log of it.
type repository struct {
	log  string
	size int64
	at   time.Time
}

// of is the commit that is checked out in a folder; empty if that is in no repository, or there is
// no git.
func (c *commits) of(ctx context.Context, dir string) string {
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

// findGit is the folder that git keeps for the checkout around a folder; empty if there is none.
func findGit(dir string) string {
	for up := dir; ; up = filepath.Dir(up) {
		path := filepath.Join(up, ".git")
		if info, err := os.Stat(path); err == nil {
			if info.IsDir() {
				return path
			}
			data, err := os.ReadFile(path) // of a further worktree
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
